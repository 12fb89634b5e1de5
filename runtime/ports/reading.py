"""Rows of datasets, read in input order."""

from typing import Protocol

from runtime.model.stored_row import StoredRow, Stretch


class SheetReads(Protocol):
    async def rows(self, stretch: Stretch) -> list[StoredRow] | None:
        """Ended rows with their values in the sheet; None: there is no such dataset.

        May stop early, after `handle_page_bytes`; empty only at the end. Rows that a newer run has written since are
        left out; rows that a rerun kept are as it found them.
        """
        ...


class SheetViews(Protocol):
    async def refresh(self, dataset_id: int) -> None:
        """Make the SQL view of the dataset's sheet, or give it the columns that it has not; safe to repeat."""
        ...
