"""Settling a page and moving its dataset on; called by slices, chord bodies and sweeps, any number of times."""

from collections import OrderedDict

import structlog

from runtime.errors import ServiceUnreachableError
from runtime.model.page import PageOut
from runtime.model.row_wait import WokenPage
from runtime.ports import DispatchEpoch, Fault, Publisher, SettlingStore

ROWS_QUEUE = "rows"
_RUNS_KEPT = 1_000

log = structlog.get_logger()


class Settling:
    """Every step is one statement of the store; what it decides is published after its commit."""

    def __init__(
        self, store: SettlingStore, publisher: Publisher, epoch: DispatchEpoch, fault: Fault
    ) -> None:
        self._store = store
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
        """Let rows whose wait is over go on: their slices are sent."""
        pages = await self._store.wake_rows()
        await self._settle_woken(pages)
        return len(pages)

    async def wake_budget(self, run_id: str) -> None:
        """Let all rows of a run that wait for budget go on."""
        while pages := await self._store.wake_budget(run_id):
            await self._settle_woken(pages)

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
            if ended.run_waits:
                await self._publisher.resume([run_id])

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
        if len(self._run_ids) > _RUNS_KEPT:
            self._run_ids.popitem(last=False)
