"""Whether a dataset's rows must stop: one sign for all its slices in a process."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False, weakref_slot=True)
class StopSign:
    """Up once a row failed under fail-fast: rows not begun are cancelled, begun ones make no further call."""

    is_up: bool = False


NEVER = StopSign()
"""The sign of rows that nobody stops."""
