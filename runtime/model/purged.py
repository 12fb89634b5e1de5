"""What a purge deleted, or would."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Purged:
    runs: int = 0
    rows: int = 0
    receipts: int = 0
