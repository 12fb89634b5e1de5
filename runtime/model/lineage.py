"""Where a play stands among the plays that called it."""

from dataclasses import dataclass
from typing import Any

RUN_ID_CHARS = 160  # of a parent's id that its child's begins with


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """`plays`: names from the root play down to this one. `accounts`: budgets that its calls are counted against."""

    root_run_id: str
    plays: tuple[str, ...]
    accounts: tuple[str, ...] = ()
    max_depth: int | None = None  # the root run's own cap; None = the limit that holds for all

    @property
    def depth(self) -> int:
        """0 of a root play, 1 of its child."""
        return len(self.plays) - 1

    def to_json(self) -> dict[str, Any]:
        """As a detached child run keeps it among its options."""
        return {
            "root": self.root_run_id,
            "plays": list(self.plays),
            "accounts": list(self.accounts),
            "max_depth": self.max_depth,
        }

    @classmethod
    def of_json(cls, value: dict[str, Any]) -> "Lineage":
        return cls(
            root_run_id=value["root"],
            plays=tuple(value["plays"]),
            accounts=tuple(value.get("accounts") or ()),
            max_depth=value.get("max_depth"),
        )
