"""Settling a page and moving its dataset on; called by slices, chord bodies and sweeps, any number of times."""

from collections import OrderedDict

import structlog

from runtime import tracing
from runtime.errors import PlaylaneError, ServiceUnreachableError
from runtime.model.dataset import DatasetState, EndedDataset
from runtime.model.events import DatasetChanged, MapCompleted, MapFailed
from runtime.model.page import PageOut
from runtime.model.row_wait import WokenPage
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.ports import DispatchEpoch, EventSink, Fault, Publisher, SettlingStore, SheetViews, no_events

ROWS_QUEUE = "rows"

log = structlog.get_logger()


class Settling:
    """Every step is one statement of the store; what it decides is published after its commit."""

    def __init__(
        self,
        store: SettlingStore,
        publisher: Publisher,
        epoch: DispatchEpoch,
        fault: Fault,
        views: SheetViews | None = None,
        events: EventSink = no_events,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self._limits = limits
        self._events = events
        self._store = store
        self._views = views
        self._publisher = publisher
        self._epoch = epoch
        self._fault = fault
        self._run_ids: OrderedDict[int, str] = OrderedDict()

    async def settle(self, run_id: str, dataset_id: int, page: int) -> None:
        """Settle the page if it is done, put its due slices out again, and advance its dataset."""
        self._keep(dataset_id, run_id)
        settled = await self._store.settle_page(dataset_id, page)
        await self._fault("settle.after_settle")
        await self._advance(run_id, dataset_id, [] if settled else [page])

    async def wake(self) -> int:
        """Let rows whose wait is over go on, so many of them as are due: their slices are sent."""
        woken = 0
        for _ in range(self._limits.wake_rounds):
            pages = await self._store.wake_rows()
            await self._settle_woken(pages)
            woken += len(pages)
            if not pages:
                break
        return woken

    async def wake_budget(self, run_id: str, most: int) -> int:
        """Let at most so many rows of a run that wait for budget go on; how many pages they are in."""
        pages = await self._store.wake_budget(run_id, most)
        await self._settle_woken(pages)
        return len(pages)

    async def _settle_woken(self, pages: list[WokenPage]) -> None:
        for page in pages:
            await self.settle(page.run_id, page.dataset_id, page.page)

    async def advance(self, dataset_id: int) -> None:
        """Claim and send the pages that fit into the window; end the dataset if all are settled."""
        run_id = await self._run_of(dataset_id)
        if run_id is not None:
            await self._advance(run_id, dataset_id, [])

    async def _advance(self, run_id: str, dataset_id: int, pages: list[int]) -> None:
        while True:
            claimed = await self._store.claim_pages(dataset_id)
            if claimed:
                await self._fault("settle.after_claim")
            idle = await self._send(run_id, dataset_id, pages + claimed)
            # A claimed page without a row has no slice that could ever settle it.
            settled = [
                page for page in idle if page in claimed and await self._store.settle_page(dataset_id, page)
            ]
            pages = []
            if not settled:
                break
        ended = await self._store.end_dataset(dataset_id)
        if ended is not None:
            log.info("dataset ended", action="dataset_ended", run_id=run_id, dataset_id=dataset_id)
            _trace(ended)
            self._tell(ended)
            if ended.run_waits:
                await self._publisher.resume([run_id])
            await self._show(dataset_id)

    def _tell(self, ended: EndedDataset) -> None:
        kind = MapFailed if ended.state is DatasetState.FAILED else MapCompleted
        counts = ended.counts
        summary = kind(
            dataset=ended.key,
            rows=counts.get("rows", 0),
            completed=counts.get("completed", 0),
            failed=counts.get("failed", 0),
            cancelled=counts.get("cancelled", 0),
        )
        self._events.emit(ended.run_id, summary)
        self._events.emit(ended.run_id, DatasetChanged(dataset=ended.key, state=ended.state.value))

    async def _show(self, dataset_id: int) -> None:
        """A sheet's SQL view is for people: its failure harms no run."""
        if self._views is None:
            return
        try:
            await self._views.refresh(dataset_id)
        except PlaylaneError as error:
            log.warning(
                "sheet's view not made", action="sheet.view", dataset_id=dataset_id, reason=str(error)
            )

    async def _send(self, run_id: str, dataset_id: int, pages: list[int]) -> list[int]:
        """Publish the due slices of these pages; returns the pages that had none."""
        if not pages:
            return []
        try:
            epoch = await self._epoch.epoch()
            queue_empty = await self._epoch.queue_empty(ROWS_QUEUE)
        except ServiceUnreachableError as error:
            log.warning(
                "pages not sent, sweeps send them", action="send_pages", run_id=run_id, reason=str(error)
            )
            return []
        out: list[PageOut] = []
        for page in pages:
            slices = await self._store.due_slices(dataset_id, page, epoch, queue_empty=queue_empty)
            out.append(PageOut(run_id=run_id, dataset_id=dataset_id, page=page, slices=tuple(slices)))
        await self._publisher.pages_out([page for page in out if page.slices])
        return [page.page for page in out if not page.slices]

    async def _run_of(self, dataset_id: int) -> str | None:
        run_id = self._run_ids.get(dataset_id)
        if run_id is None:
            run_id = await self._store.run_of(dataset_id)
            if run_id is not None:
                self._keep(dataset_id, run_id)
        return run_id

    def _keep(self, dataset_id: int, run_id: str) -> None:
        self._run_ids[dataset_id] = run_id
        if len(self._run_ids) > self._limits.settled_runs_known:
            self._run_ids.popitem(last=False)


def _trace(ended: EndedDataset) -> None:
    """The dataset's own span, from its first page to its end."""
    told: dict[str, str | int] = {"playlane.dataset": ended.key}
    told |= {f"playlane.{name}": count for name, count in ended.counts.items()}
    failed = "the dataset failed" if ended.state is DatasetState.FAILED else None
    tracing.past_span("playlane.dataset", ended.run_id, told, start_s=ended.began_s, failed=failed)
