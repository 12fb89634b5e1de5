"""Which rows a rerun takes: those of its input whose stored cells failed, are missing or are stale."""

from enum import StrEnum


class Only(StrEnum):
    FAILED = "failed"  # rows of which a cell failed
    MISSING = "missing"  # rows that the sheet doesn't have, or that lack one of the play's columns
    STALE = "stale"  # rows with a cell whose time is up

    @classmethod
    def of(cls, options: dict[str, object]) -> "Only | None":
        """From a run's stored options."""
        only = options.get("only")
        return None if only is None else cls(str(only))
