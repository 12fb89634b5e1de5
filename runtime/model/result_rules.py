"""Where a tool says that things lie in its results: targets, lists, and what identifies a list's items."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Paths = tuple[str, ...]
Targets = tuple[tuple[str, Paths], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultRules:
    """`targets` and `identities` name the paths to try, in order; `lists` are paths of lists."""

    targets: Targets = ()
    lists: Paths = ()
    identities: Targets = ()

    def __bool__(self) -> bool:
        return bool(self.targets or self.lists or self.identities)

    def to_json(self) -> dict[str, Any]:
        parts = {
            "targets": _pairs_json(self.targets),
            "lists": list(self.lists),
            "identities": _pairs_json(self.identities),
        }
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> "ResultRules":
        return cls(
            targets=_pairs(stored.get("targets", ())),
            lists=tuple(stored.get("lists", ())),
            identities=_pairs(stored.get("identities", ())),
        )


def joined_targets(*sources: Mapping[str, Paths]) -> Targets:
    """Targets of several declarations; where more than one names a target, earlier paths are tried first."""
    names = dict.fromkeys(name for source in sources for name in source)
    return tuple(
        (name, tuple(dict.fromkeys(path for source in sources for path in source.get(name, ()))))
        for name in names
    )


# As pairs: JSONB does not keep the order of an object's names.
def _pairs_json(pairs: Targets) -> list[Any]:
    return [[name, list(paths)] for name, paths in pairs]


def _pairs(stored: Any) -> Targets:
    return tuple((name, tuple(paths)) for name, paths in stored)
