"""One way to write a state table: legal moves as a mapping, anything else is an error."""

from collections.abc import Mapping
from enum import StrEnum
from typing import TypeVar

from runtime.errors import StateTransitionError

State = TypeVar("State", bound=StrEnum)


def require(table: Mapping[State, frozenset[State]], old: State, new: State) -> State:
    """Return `new` if the table allows it after `old`, else raise StateTransitionError."""
    if new not in table[old]:
        raise StateTransitionError(f"{type(old).__name__}: {old} cannot become {new}")
    return new


def terminal(table: Mapping[State, frozenset[State]]) -> frozenset[State]:
    """The states that nothing follows."""
    return frozenset(state for state, followers in table.items() if not followers)
