"""Performs what a body asks for, over ports, on the process's loop."""

import asyncio
from dataclasses import replace
from typing import Any, assert_never

import structlog

from runtime.context.dataset import DatasetSpec
from runtime.context.dataset_handle import current_reader
from runtime.context.query_rows import QueryRows
from runtime.context.tool_asking import page_options
from runtime.context.tool_result import ToolResult, journal_json
from runtime.context.workspace import Workspace
from runtime.engine.body_scope import BodyScope, BodyTools
from runtime.engine.body_waits import BodyPlace
from runtime.engine.csv_files import CsvFiles
from runtime.engine.handle_reads import HandleReads, journal_form
from runtime.engine.hosts import Services
from runtime.engine.outcomes import error_payload
from runtime.engine.row_sources import QueryInput
from runtime.engine.run_result import handles_in, preview
from runtime.engine.seeding import Seeder
from runtime.engine.tool_calls import CallContext, CallPlace
from runtime.engine.waiting_tools import call_name
from runtime.errors import (
    AttemptLostError,
    DatasetReadError,
    OwnershipLostError,
    PlaylaneError,
    RowWaitsError,
    ServiceUnreachableError,
)
from runtime.model.boundary import BodyAt
from runtime.model.call_options import NO_OPTIONS
from runtime.model.operation import JournalEntry, Op, OpKind, Resting
from runtime.model.query_page import Query, QueryPage
from runtime.model.row_wait import RowWait, WaitKind
from runtime.model.run import ClaimedRun
from runtime.model.stored_row import Stretch
from runtime.play import PlayDefinition
from runtime.policy.budgeting import accounts_of
from runtime.policy.freshness import Refresh
from runtime.policy.limits import Limits
from runtime.policy.lineage import lineage_of
from runtime.ports import RunStore, WaitStore

log = structlog.get_logger()


class Operations:
    """One method: `perform`."""

    def __init__(
        self,
        *,
        runs: RunStore,
        seeder: Seeder,
        tools: BodyTools,
        limits: Limits,
        services: Services | None = None,
        waits: WaitStore | None = None,
        csv: CsvFiles | None = None,
        reads: HandleReads | None = None,
    ) -> None:
        self._runs = runs
        self._reads = reads
        self._csv = csv or CsvFiles(Workspace.of(()), limits)
        self._seeder = seeder
        self._tools = tools
        self._limits = limits
        self._services = services
        self._waits = waits

    async def perform(self, run: ClaimedRun, play: PlayDefinition, op: Op) -> dict[str, Any] | Resting | None:
        """`{"ok": value}` or `{"error": payload}`; None: a durable wait that the store will resolve.

        Resting: to be performed again when due; the store wakes the run then if it was suspended.

        Lost ownership, unreachable services and what isn't playlane's are raised: they are not outcomes.
        """
        current_reader.set(self._reads)
        try:
            return await self._perform(run, play, op)
        except AttemptLostError:
            if op.kind.is_wait:
                return None  # a dataset that ended while it was seeded looks the same: the next poll tells
            raise
        except (OwnershipLostError, ServiceUnreachableError):
            raise
        except PlaylaneError as error:
            return {"error": error_payload(error)}

    async def whole(self, entry: JournalEntry, op: Op | None) -> JournalEntry:
        """A journal's entry as the body is to meet it; raises InputChangedError if what it read is another by now."""
        return entry if entry.kind != OpKind.READ else await self._rows().whole(entry, op)

    async def previews(self, result: Any) -> dict[int, list[Any]]:
        """The first rows of the datasets that a result names."""
        found: dict[int, list[Any]] = {}
        for handle in handles_in(result, self._limits):
            if self._reads is not None and handle.dataset_id is not None:
                stretch = Stretch(dataset_id=handle.dataset_id, limit=self._limits.preview_rows)
                try:
                    rows = await self._reads.read_rows(stretch, name=handle.dataset)
                except DatasetReadError:
                    continue  # of a run that is gone: it is named without rows
                found[handle.dataset_id] = preview([row.data for row in rows], self._limits)
        return found

    def journal_form(self, entry: JournalEntry, op: Op) -> JournalEntry:
        """The entry as the journal keeps it."""
        return journal_form(entry, op, self._limits)

    def _rows(self) -> HandleReads:
        if self._reads is None:
            raise DatasetReadError("datasets can't be read here: this process has no sheets")
        return self._reads

    async def _perform(
        self, run: ClaimedRun, play: PlayDefinition, op: Op
    ) -> dict[str, Any] | Resting | None:
        match op.kind:
            case OpKind.CSV:
                return {"ok": await self._csv.scan(run.run_id, op.args)}
            case OpKind.READ:
                return await self._rows().perform(op.args)
            case OpKind.TOOL:
                try:
                    value, _ = await self._tools.execute(
                        _call_context(run),
                        op.args["tool"],
                        op.args["input"],
                        op.args.get("options", NO_OPTIONS),
                        self._place(run, op),
                    )
                except RowWaitsError as later:
                    return await self._rest(run, op, later.wait)
                finally:
                    await self._tools.store_usage()
                return {"ok": journal_json(value)}
            case OpKind.TIMER:
                await self._runs.arm_timer(run.run_id, run.attempt, op.key, op.args["delay_ms"] / 1000)
                return None
            case OpKind.SLEEP:
                await self._runs.arm_timer(run.run_id, run.attempt, op.key, op.args.delay_ms / 1000)
                return None
            case OpKind.EVENT:
                assert self._waits is not None
                at = BodyAt(run_id=run.run_id, key=op.key, attempt=run.attempt)
                await self._waits.arm_event(at, op.args.boundary(op.key))
                return None
            case OpKind.DATASET:
                return await self._seed(run, play, op)
            case OpKind.STEP | OpKind.CHILD | OpKind.ENQUEUE | OpKind.FETCH:
                return await self._in_scope(run, play, op)
            case _:
                assert_never(op.kind)

    async def _seed(self, run: ClaimedRun, play: PlayDefinition, op: Op) -> Resting | None:
        spec: DatasetSpec = op.args
        if not isinstance(spec.rows, QueryRows):
            await self._seeder.seed(run, op.key, spec, play.source_hash)
            return None

        async def page_of(query: Query, page: QueryPage) -> ToolResult:
            place = CallPlace(parts=("body", op.key), node=(query.id,))
            options = page_options(query, page)
            return (await self._tools.execute(_call_context(run), query.tool, query.input, options, place))[0]

        rows = QueryInput(spec.rows.asked_by(page_of, self._limits))
        try:
            await self._seeder.seed(run, op.key, replace(spec, rows=rows), play.source_hash)
        except RowWaitsError as later:
            return await self._rest(run, op, later.wait)
        finally:
            await self._tools.store_usage()
        return None

    async def _in_scope(self, run: ClaimedRun, play: PlayDefinition, op: Op) -> dict[str, Any] | Resting:
        """What is done here for the body as ordinary asyncio; it rests as a whole if a call within it must wait."""
        scope = BodyScope(
            tools=self._tools,
            context=_call_context(run),
            limits=self._limits,
            services=self._services,
            lineage=lineage_of(run.run_id, play.name, run.options),
            op_key=op.key,
            n=int(op.key.rpartition(":")[2]),
            captures=bool(run.options.get("capture")),
        )
        try:
            kept = await scope.perform(op.args)
            scope.check()
        except BaseException as error:
            if scope.fatal is not None:
                raise scope.fatal from error
            if scope.waits is None or _is_cancelled(error):
                raise
            await scope.settled()
            return await self._rest(run, op, scope.waits.wait)
        finally:
            if names := await scope.own_tasks.end(self._limits.left_over_wait_s):
                log.warning("tasks left running", action="body.left_over", run_id=run.run_id, tasks=names)
            await self._tools.store_usage()
            if scope.lines:
                await self._runs.add_logs(run.run_id, scope.lines)
        return {"ok": kept, **_children(scope)}

    def _place(self, run: ClaimedRun, op: Op) -> CallPlace:
        durable = None if self._waits is None else BodyPlace(self._waits, self._runs, run, op.key)
        return CallPlace(parts=("body", op.key), durable=durable, node=(str(op.args["id"]),))

    async def _rest(self, run: ClaimedRun, op: Op, wait: RowWait) -> Resting:
        due_ms = self._limits.later_max_ms if wait.due_ms is None else wait.due_ms
        kind = WaitKind.BUDGET if wait.kind is WaitKind.BUDGET else WaitKind.LANE
        await self._runs.rest(
            run.run_id, run.attempt, f"{kind.value}:{op.key}", due_ms / 1000, kind=kind.value
        )
        log.info("body waits", action="body.rests", run_id=run.run_id, op=op.key, kind=kind, wait=wait.detail)
        # A live body asks again by itself; a suspended one is woken when there is room.
        return Resting(due_ms=min(due_ms, self._limits.budget_poll_ms) if kind is WaitKind.BUDGET else due_ms)

    async def settled(self) -> None:
        """Before its place is given up: no step that this process began runs on, within a bound."""
        if self._services is not None:
            await self._services.local.settled()

    async def give_up(self, run: ClaimedRun, op: Op) -> None:
        """The body cancelled this operation: a durable wait behind it ends."""
        if op.kind.is_wait:
            await self._runs.cancel_boundary(run.run_id, run.attempt, op.key)
        elif op.kind is OpKind.TOOL and self._waits is not None:
            event = f"{call_name(op.args['tool'], op.args['input'], 0)}:event"
            at = BodyPlace(self._waits, self._runs, run, op.key).at(event)
            await self._runs.cancel_boundary(run.run_id, run.attempt, at.key)


def _children(scope: BodyScope) -> dict[str, Any]:
    """How many child plays ended in it, to be told when its outcome is kept."""
    counts = {"ok": scope.children_ok, "failed": scope.children_failed}
    return {"children": counts} if any(counts.values()) else {}


def _is_cancelled(error: BaseException) -> bool:
    """Whether the operation is cut from outside: its body gave it up, or the process stops."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0


def _call_context(run: ClaimedRun) -> CallContext:
    return CallContext(
        org_id=run.org_id,
        run_id=run.run_id,
        integration_mode=run.options.get("integration_mode"),
        refresh=Refresh.of(run.options, run.epoch_ms),
        budget=accounts_of(run.options),
    )
