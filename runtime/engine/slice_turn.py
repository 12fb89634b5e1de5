"""What the rows of a taken slice share, and how each of them comes to its end."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import structlog
from structlog.contextvars import bind_contextvars

from runtime.engine.cell_run import CellRules
from runtime.engine.hosts import Services
from runtime.engine.open_slice import RunLine
from runtime.engine.provenance import RowTrace
from runtime.engine.row_run import cancelled_row, died_row, run_row
from runtime.engine.row_scope import RowScope
from runtime.engine.row_waits import RowWaiting, SliceBoundaries
from runtime.engine.stall_watch import StallWatch
from runtime.engine.stop_sign import StopSign
from runtime.engine.stored_cells import cell_rules
from runtime.engine.tool_calls import CallContext, ToolCalls
from runtime.model.cell import StoredCells
from runtime.model.dataset import DatasetFacts
from runtime.model.lineage import Lineage
from runtime.model.row import FinishedRow, InputRow, RowState
from runtime.model.slice import TakenSlice
from runtime.play import Column
from runtime.policy.budgeting import accounts_of
from runtime.policy.freshness import Refresh
from runtime.policy.limits import Limits
from runtime.policy.lineage import lineage_of

log = structlog.get_logger()


def wall_ms() -> int:
    """Now, by this machine's clock: for what is shown, never for what is decided."""
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RowProgram:
    """A dataset's columns as recovered from its play's body, and the ctx that they hold."""

    columns: tuple[Column, ...]
    ctx: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What was read for rows that run together: what the sheet has of them, and their boundaries."""

    stored: Mapping[str, StoredCells]
    boundaries: SliceBoundaries | None


@dataclass(slots=True, eq=False, kw_only=True)
class SliceTurn:
    """One holding of a slice."""

    taken: TakenSlice
    program: RowProgram
    calls: ToolCalls
    services: Services | None
    limits: Limits
    stop: StopSign
    stalls: StallWatch
    rules: CellRules = field(init=False)
    lineage: Lineage = field(init=False)
    context: CallContext = field(init=False)

    def __post_init__(self) -> None:
        facts = self.taken.facts
        self.rules = cell_rules(self.taken)
        self.lineage = lineage_of(facts.run_id, facts.play, facts.options)
        self.context = _context(facts)

    async def finished(
        self, row: InputRow, read: Read, leaving: StopSign, logs: list[RunLine]
    ) -> FinishedRow:
        """Run the row; what it logs is added to `logs`. `leaving` goes up before the slice's rows are cancelled."""
        bind_contextvars(row=row.row_key)
        if self.stop.is_up:
            return cancelled_row(row)
        if row.crashes >= self.limits.suspect_crashes + self.limits.suspect_deaths:
            log.error(
                "row failed: it ends its workers",
                action="row.died",
                row=row.row_key,
                slice=str(self.taken.id),
            )
            return died_row(row)
        scope = self._scope(row, read, logs)
        before, program = read.stored.get(row.row_key), self.program
        self.stalls.begin(scope)
        try:
            ended = await run_row(row, program.columns, program.ctx, scope, before, self.rules, leaving)
        finally:
            self.stalls.end(scope)
        if ended.state in (RowState.COMPLETED, RowState.FAILED) and scope.children:
            ended = replace(ended, children_ok=scope.children_ok, children_failed=scope.children_failed)
        return ended if scope.durable is None else scope.durable.finished(ended)

    def _scope(self, row: InputRow, read: Read, logs: list[RunLine]) -> RowScope:
        facts = self.taken.facts
        captures = bool(facts.options.get("capture"))
        scope = RowScope(
            calls=self.calls,
            context=self.context,
            dataset=facts.key,
            play=facts.play,
            position=row.position,
            limits=self.limits,
            logs=logs,
            row_key=row.row_key,
            namespace=facts.namespace,
            services=self.services,
            lineage=self.lineage,
            trace=RowTrace(run_id=facts.run_id, limits=self.limits, wall_ms=wall_ms) if captures else None,
            stop=self.stop,
        )
        if read.boundaries is not None:
            scope.durable = RowWaiting(scope, read.boundaries)
        return scope


def _context(facts: DatasetFacts) -> CallContext:
    return CallContext(
        org_id=facts.org_id,
        run_id=facts.run_id,
        integration_mode=facts.options.get("integration_mode"),
        refresh=Refresh.of(facts.options, facts.epoch_ms),
        budget=accounts_of(facts.options),
    )
