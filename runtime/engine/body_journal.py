"""What an attempt adds to its run's journal: numbers, times and bounds. Nothing is written here."""

from collections.abc import Mapping
from typing import Any

from runtime.errors import JournalLimitError
from runtime.model import json_value
from runtime.model.operation import JournalEntry, Op
from runtime.policy.limits import Limits

Outcome = dict[str, Any]


class BodyJournal:
    """Counts entries, replayed and new; `at_ms` of an outcome is the body's own clock, which never goes back."""

    def __init__(self, play: str, limits: Limits, started_ms: int) -> None:
        self._play = play
        self._limits = limits
        self._started_ms = started_ms
        self._seq = 0
        self._bytes = 0
        self._at_ms = 0

    def replayed(self, entry: JournalEntry) -> None:
        """An entry of an earlier attempt."""
        if entry.seq == 0:
            self._started_ms = entry.outcome.get("started_ms", self._started_ms)
        self._seq = entry.seq + 1
        self._at_ms = max(self._at_ms, entry.outcome.get("at_ms", 0))
        self._bytes += len(json_value.dumps(entry.outcome))

    def entries(
        self, ready: Mapping[str, Outcome], asked: Mapping[str, Op], wall_ms: int
    ) -> list[JournalEntry]:
        """The next entries, in the order in which the body is to meet them."""
        self._at_ms = max(self._at_ms, wall_ms - self._started_ms)
        return [
            self._entry(seq, asked[key], outcome)
            for seq, (key, outcome) in enumerate(ready.items(), self._seq)
        ]

    def count(self, kept: list[JournalEntry]) -> None:
        """Take them into account as they are kept; raises JournalLimitError before anything is written."""
        self._seq += len(kept)
        self._bytes += sum(len(json_value.dumps(entry.outcome)) for entry in kept)
        limits = self._limits
        if self._seq > limits.journal_entries or self._bytes > limits.journal_bytes:
            raise JournalLimitError(
                f'play "{self._play}": its body did {self._seq:,} operations whose outcomes hold '
                f"{self._bytes:,} bytes; a run keeps {limits.journal_entries:,} and "
                f"{limits.journal_bytes:,} bytes. Do the work per row, in a dataset's columns"
            )

    def _entry(self, seq: int, op: Op, outcome: Outcome) -> JournalEntry:
        timed = {**outcome, "at_ms": self._at_ms}
        if seq == 0:
            timed["started_ms"] = self._started_ms
        return JournalEntry(seq=seq, op_key=op.key, kind=op.kind.value, digest=op.digest, outcome=timed)
