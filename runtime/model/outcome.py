"""What became of one call of a request; every call has exactly one."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemCompleted:
    """`output_json` is the text that every caller is served; `credits` None = the reply does not say."""

    output_json: bytes
    credits: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemFailed:
    """A known failure. `terminal`: final for this input; else repairable by a later run."""

    code: str
    message: str
    retryable: bool = False
    terminal: bool = True
    charged: bool | None = None  # None = the reply does not say
    credits: float | None = None  # as the reply says
    details: dict[str, Any] = field(default_factory=dict)  # of the request that failed, JSON

    def payload(self, tool: str) -> dict[str, Any]:
        """The failure as a tool error's JSON payload."""
        return {
            "code": self.code,
            "message": self.message,
            "tool": tool,
            "retryable": self.retryable,
            "details": {**self.details, "terminal": self.terminal},
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemUnknown:
    """Sent and perhaps paid, but nobody can say what the answer was; never sent again by itself."""

    reason: str


ItemOutcome = ItemCompleted | ItemFailed | ItemUnknown


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One outcome per call, in the calls' order, and what in the reply belonged to no call."""

    outcomes: tuple[ItemOutcome, ...]
    strangers: tuple[str, ...] = ()
    doubled: tuple[str, ...] = ()


def all_unknown(count: int, reason: str) -> Split:
    """The reply as a whole can't be attributed."""
    return Split(outcomes=tuple(ItemUnknown(reason=reason) for _ in range(count)))
