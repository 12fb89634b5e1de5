"""Datasets, pages and how they settle."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from runtime.model.dataset import DatasetFacts, EndedDataset, NewDataset, OpenDataset, SeededPage, SeedPage
from runtime.model.row_wait import WokenPage


class DatasetStore(Protocol):
    async def open(self, new: NewDataset, attempt: int, op_key: str) -> OpenDataset:
        """Create the dataset and its armed boundary, or find them as they are; fenced by the attempt.

        Raises PlayVersionUnavailableError if the stored column names differ.
        """
        ...

    async def seed_page(self, page: SeedPage) -> SeededPage:
        """Store a page's rows. A page already there is left alone.

        A key that the dataset has already is a duplicate. Mode net_new leaves out rows that a run brought to an end
        or that another live run took; a rerun keeps rows that it need not run, and leaves out what the sheet lacks.

        Raises AttemptLostError if the run's attempt moved on or the dataset isn't seeding.
        """
        ...

    async def finish_seeding(self, dataset_id: int, attempt: int) -> None:
        """The whole input is in: seeding -> running; fenced by the attempt."""
        ...

    async def facts(self, dataset_id: int) -> DatasetFacts | None: ...


class SettlingStore(Protocol):
    """The statements of `settle_page`: each decides alone, trusts no caller, may be repeated by anybody."""

    async def settle_page(self, dataset_id: int, page: int) -> bool:
        """True if this call settled it: no slice is open, no row waits. If all that is left sleeps, it is parked."""
        ...

    async def claim_pages(self, dataset_id: int) -> list[int]:
        """Move the window on, as far as pages in flight allow; cut each claimed page into slices."""
        ...

    async def due_slices(self, dataset_id: int, page: int, epoch: str, *, queue_empty: bool) -> list[int]:
        """Mark as sent, and return, the slices of the page that must be published now."""
        ...

    async def end_dataset(self, dataset_id: int) -> EndedDataset | None:
        """Settle it once when all its pages are; resolve its boundary with the outcome; wake its run."""
        ...

    async def stale_pages(self, epoch: str, *, queue_empty: bool) -> list[tuple[str, int, int]]:
        """Sweep: (run, dataset, page) of pages to cut, send or settle; bounded."""
        ...

    async def stale_datasets(self) -> list[int]:
        """Sweep: datasets that can claim a page or end; bounded."""
        ...

    async def due_runs(self) -> list[str]:
        """Sweep: runs to publish `plays.resume` for; marks the hint so that it is rate limited; bounded."""
        ...

    async def resolve_timers(self) -> None: ...

    async def wake_rows(self) -> list[WokenPage]:
        """Let a batch of rows whose wait is over go on; settle these pages to send them. Rows of ended runs stay."""
        ...

    async def wake_budget(self, run_id: str, most: int | None = None) -> list[WokenPage]:
        """The same for a batch of a run's rows that wait for budget, at most `most`; empty when none is left."""
        ...

    async def run_of(self, dataset_id: int) -> str | None:
        """The run that a dataset belongs to."""
        ...

    def sweep_turn(self, name: str) -> AbstractAsyncContextManager[bool]:
        """False if another process sweeps this just now; tried, never waited for."""
        ...
