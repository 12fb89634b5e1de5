"""Performs what a body asks for, over ports, on the process's loop."""

import asyncio
from typing import Any, Protocol, assert_never

import structlog

from runtime.context.csv_rows import scan_csv
from runtime.context.tool_result import ToolResult, journal_json
from runtime.engine.outcomes import error_payload
from runtime.engine.seeding import Seeder
from runtime.engine.tool_calls import CallContext, CallPlace
from runtime.errors import (
    AttemptLostError,
    OwnershipLostError,
    PlaylaneError,
    RowWaitsError,
    ServiceUnreachableError,
)
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.model.operation import Op, OpKind, Resting
from runtime.model.row_wait import RowWait
from runtime.model.run import ClaimedRun
from runtime.play import PlayDefinition
from runtime.policy.freshness import Refresh
from runtime.policy.limits import Limits
from runtime.ports import RunStore

log = structlog.get_logger()


class BodyTools(Protocol):
    """Tool calls of a body: paid once per receipt key, like those of rows."""

    async def execute(
        self, context: CallContext, tool: str, input: Any, options: CallOptions, place: CallPlace
    ) -> tuple[ToolResult, bool]: ...

    async def store_usage(self) -> None: ...


class Operations:
    """One method: `perform`."""

    def __init__(self, *, runs: RunStore, seeder: Seeder, tools: BodyTools, limits: Limits) -> None:
        self._runs = runs
        self._seeder = seeder
        self._tools = tools
        self._limits = limits

    async def perform(self, run: ClaimedRun, play: PlayDefinition, op: Op) -> dict[str, Any] | Resting | None:
        """`{"ok": value}` or `{"error": payload}`; None: a durable wait that the store will resolve.

        Resting: to be performed again when due; the store wakes the run then if it was suspended.

        Lost ownership, unreachable services and what isn't playlane's are raised: they are not outcomes.
        """
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

    async def _perform(
        self, run: ClaimedRun, play: PlayDefinition, op: Op
    ) -> dict[str, Any] | Resting | None:
        match op.kind:
            case OpKind.CSV:
                handle = await asyncio.to_thread(scan_csv, op.args["path"], self._limits)
                return {"ok": handle.to_json()}
            case OpKind.TOOL:
                try:
                    value, _ = await self._tools.execute(
                        _call_context(run),
                        op.args["tool"],
                        op.args["input"],
                        op.args.get("options", NO_OPTIONS),
                        CallPlace(parts=("body", op.key)),
                    )
                except RowWaitsError as later:
                    return await self._rest(run, op, later.wait)
                finally:
                    await self._tools.store_usage()
                return {"ok": journal_json(value)}
            case OpKind.TIMER:
                await self._runs.arm_timer(run.run_id, run.attempt, op.key, op.args["delay_ms"] / 1000)
                return None
            case OpKind.DATASET:
                await self._seeder.seed(run, op.key, op.args, play.source_hash)
                return None
            case _:
                assert_never(op.kind)

    async def _rest(self, run: ClaimedRun, op: Op, wait: RowWait) -> Resting:
        due_ms = self._limits.later_max_ms if wait.due_ms is None else wait.due_ms
        await self._runs.rest(run.run_id, run.attempt, f"lane:{op.key}", due_ms / 1000)
        log.info("body waits for a lane", action="body.rests", run_id=run.run_id, op=op.key, wait=wait.detail)
        return Resting(due_ms=due_ms)

    async def give_up(self, run: ClaimedRun, op: Op) -> None:
        """The body cancelled this operation: a durable wait behind it ends."""
        if op.kind.is_wait:
            await self._runs.cancel_boundary(run.run_id, run.attempt, op.key)


def _call_context(run: ClaimedRun) -> CallContext:
    return CallContext(
        org_id=run.org_id,
        run_id=run.run_id,
        integration_mode=run.options.get("integration_mode"),
        refresh=Refresh.of(run.options, run.epoch_ms),
    )
