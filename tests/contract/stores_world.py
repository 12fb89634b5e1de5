"""Every store over one state, real or in memory, and short words for what the contract tests do with them."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from itertools import count
from typing import Any

from runtime.model import json_value
from runtime.model.dataset import DatasetState, NewDataset, OpenDataset, SeedPage, SeedRow
from runtime.model.receipt import Receipt, ReceiptState
from runtime.model.row import FinishedRow, RowState
from runtime.model.row_wait import RowWait
from runtime.model.run import ClaimedRun, NewRun
from runtime.model.slice import SliceId, TakenSlice
from runtime.policy.limits import Limits
from runtime.ports import (
    BudgetStore,
    DatasetStore,
    ReceiptStore,
    RowWrite,
    RowWriteAnswer,
    RunStore,
    SessionStore,
    SettlingStore,
    SheetReads,
    SliceRows,
    SliceStore,
    WaitStore,
)

LIMITS = Limits(
    slice_rows=2, slices_per_page=2, pages_in_flight=2, sweep_batch=50, receipt_chunk=3, read_bytes=600
)
EPOCH = "epoch-1"
TTL_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class RowLook:
    state: RowState
    superseded: bool


@dataclass(slots=True, kw_only=True)
class StoresWorld:
    sessions: SessionStore
    runs: RunStore
    datasets: DatasetStore
    settling: SettlingStore
    slices: SliceStore
    reads: SheetReads
    receipts: ReceiptStore
    budgets: BudgetStore
    waits: WaitStore
    age: Callable[[float], Awaitable[None]]  # let this many seconds pass
    rows: Callable[[int], Awaitable[dict[int, RowLook]]]
    sheet: Callable[[str, str, str], Awaitable[dict[str, Any]]]
    dataset_state: Callable[[int], Awaitable[DatasetState]]
    usage_items: Callable[[str], Awaitable[int]]
    log_messages: Callable[[str], Awaitable[list[str]]]

    async def session(self, session_id: str = "s1") -> str:
        await self.sessions.open(session_id, role="rows", hostname="h", pid=1, ttl_s=TTL_S)
        return session_id

    async def kill(self, session_id: str) -> None:
        """Its time runs out and a sweep says so."""
        await self.age(10 * TTL_S)
        for other in ("s1", "s2", "s3"):
            if other != session_id:
                await self.sessions.renew(other, TTL_S * 1000)
        assert session_id in await self.sessions.end_expired()

    async def held_run(self, run_id: str = "r1", session_id: str = "s1") -> ClaimedRun:
        await self.session(session_id)
        await self.runs.insert(NewRun(run_id=run_id, org_id="org", play="play", input={"n": 1}))
        claimed = await self.runs.claim(run_id, session_id)
        assert claimed is not None
        return claimed

    async def opened(self, run_id: str = "r1", key: str = "d", attempt: int = 1) -> OpenDataset:
        new = NewDataset(run_id=run_id, key=key, namespace="sheet", columns=("c",), source_hash="h")
        return await self.datasets.open(new, attempt, f"dataset:{key}")

    async def seed(
        self, dataset_id: int, page: int, keys: list[str], run_id: str = "r1", attempt: int = 1
    ) -> int:
        first = page * LIMITS.page_rows
        rows = tuple(
            SeedRow(position=first + n, row_key=key, input=json_value.dumps({"k": key}))
            for n, key in enumerate(keys)
        )
        seeded = await self.datasets.seed_page(
            SeedPage(
                dataset_id=dataset_id,
                run_id=run_id,
                attempt=attempt,
                page=page,
                first_position=first,
                end_position=first + len(keys),
                rows=rows,
                input_digest=f"digest-{page}",
            )
        )
        return seeded.left_out

    async def seeded(self, pages: int, run_id: str = "r1", key: str = "d") -> int:
        """A held run with a running dataset of full pages; the dataset's id."""
        await self.held_run(run_id)
        opened = await self.opened(run_id, key)
        names = count()
        for page in range(pages):
            keys = [f"k{next(names)}" for _ in range(LIMITS.page_rows)]
            await self.seed(opened.dataset_id, page, keys, run_id)
        await self.datasets.finish_seeding(opened.dataset_id, 1)
        return opened.dataset_id

    async def due(
        self, dataset_id: int, page: int, epoch: str = EPOCH, *, queue_empty: bool = False
    ) -> list[int]:
        return await self.settling.due_slices(dataset_id, page, epoch, queue_empty=queue_empty)

    async def take(
        self, dataset_id: int, page: int, number: int, session_id: str = "s1", run_id: str = "r1"
    ) -> TakenSlice | None:
        return await self.slices.take(
            run_id, SliceId(dataset_id=dataset_id, page=page, slice=number), session_id
        )

    async def taken(
        self, dataset_id: int, page: int, number: int, session_id: str = "s1", run_id: str = "r1"
    ) -> TakenSlice:
        taken = await self.take(dataset_id, page, number, session_id, run_id)
        assert taken is not None
        return taken

    async def flush(
        self,
        taken: TakenSlice,
        session_id: str = "s1",
        *,
        rows: int | None = None,
        final: bool = True,
        state: RowState = RowState.COMPLETED,
        **more: Any,
    ) -> RowWriteAnswer:
        part = SliceRows(
            id=taken.id,
            fence=taken.fence,
            facts=taken.facts,
            rows=tuple(finished(row.position, row.row_key, state) for row in taken.rows[:rows]),
            final=final,
        )
        return await self.slices.flush(RowWrite(session_id=session_id, slices=(part,), **more))

    async def run_page(
        self, dataset_id: int, page: int, run_id: str = "r1", state: RowState = RowState.COMPLETED
    ) -> None:
        """Every open slice of a page from message to settling."""
        for number in await self.due(dataset_id, page):
            await self.flush(await self.taken(dataset_id, page, number, run_id=run_id), state=state)
        await self.settling.settle_page(dataset_id, page)


def finished(
    position: int, row_key: str, state: RowState = RowState.COMPLETED, value: str = "v"
) -> FinishedRow:
    failed = state is RowState.FAILED
    return FinishedRow(
        position=position,
        row_key=row_key,
        state=state,
        data=json_value.dumps({"c": None if failed else f"{value}:{row_key}"}),
        cell_meta=json_value.dumps({"c": {"state": state.value}}),
        error=json_value.dumps({"code": "bad", "message": f"no {row_key}"}) if failed else None,
    )


def waiting(position: int, row_key: str, wait: RowWait) -> FinishedRow:
    return FinishedRow(
        position=position, row_key=row_key, state=RowState.WAITING, data=b"", cell_meta=b"", wait=wait
    )


def receipt(key: str, fence: int = 1, **changes: Any) -> Receipt:
    values: dict[str, Any] = {"state": ReceiptState.COMPLETED, "output": b'{"v":1}'} | changes
    return Receipt(key=key, org_id="org", tool="tool", run_id="r1", fence=fence, **values)
