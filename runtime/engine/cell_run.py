"""One cell: taken from the sheet as it is, skipped, or made by its resolver."""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any

from runtime.context.previous_cell import previous_cell, stored_value
from runtime.context.row_view import RowView
from runtime.context.run_program import UNAVAILABLE
from runtime.context.tool_result import ToolResult
from runtime.engine.row_scope import RowScope
from runtime.errors import JsonValueError, PlayDefinitionError
from runtime.known_secrets import known_secrets
from runtime.model import json_value
from runtime.model.call_options import is_seconds
from runtime.model.cell import KEPT, CellState, StoredCell, StoredCells, cell_meta
from runtime.model.kept_value import KeptValue, Marks, plain
from runtime.model.rerun import Only
from runtime.model.resolver import CallShape
from runtime.model.tool_output import NO_RESULT, Origin
from runtime.play import Column
from runtime.policy.cell_reuse import Freshness, is_kept_by_rerun, is_reused, stale_at_ms
from runtime.policy.limits import Limits

_FOREVER = float("inf")


def _unknown_ms() -> int:
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CellRules:
    """What the rows of a slice have in common: the beginning of their run, the store's clock, what a rerun takes."""

    epoch_ms: int = 0
    now_ms: Callable[[], int] = _unknown_ms
    only: Only | None = None


PLAIN_RULES = CellRules()


@dataclass(slots=True)
class Cell:
    """A cell that has ended; `value` is plain."""

    value: Any
    marks: Marks
    meta: dict[str, Any]
    error: dict[str, Any] | None = None  # of a failure that an earlier run left and this one takes over


@dataclass(slots=True, kw_only=True)
class RowTurn:
    """A row on its way through its columns."""

    position: int
    view: RowView
    ctx: Any
    scope: RowScope
    stored: StoredCells | None = None
    rules: CellRules = PLAIN_RULES
    is_changed: bool = False  # a cell of it got another value than the stored one


async def cell_of(column: Column, turn: RowTurn) -> Cell:
    """The column's cell for this row; whatever the author's functions raise is raised."""
    before = turn.stored.cell(column.name) if turn.stored is not None else None
    only = turn.rules.only
    if before is not None and only is not None:
        freshness = _freshness(column, before)
        epoch_ms, changed = turn.rules.epoch_ms, turn.is_changed
        if is_kept_by_rerun(before, only, freshness, epoch_ms=epoch_ms, is_after_change=changed):
            return _taken(before)
    if column.run_if is not None and not await _says_yes(column, turn, before):
        return _skipped(column, turn)
    if before is not None and only is None and _is_fresh(column, before, turn):
        return _taken(before)
    cell = await _made(column, turn, before)
    if only is not None and not turn.is_changed:
        turn.is_changed = before is None or before.value != cell.value
    return cell


def _is_fresh(column: Column, before: StoredCell, turn: RowTurn) -> bool:
    if column.stale_after_seconds is None:
        return False
    return is_reused(before, _freshness(column, before), epoch_ms=turn.rules.epoch_ms)


async def _says_yes(column: Column, turn: RowTurn, before: StoredCell | None) -> bool:
    assert column.run_if is not None
    positional = (turn.view, turn.ctx) if column.condition.takes_ctx else (turn.view,)
    answer = column.run_if(*positional, **_extras(column.condition, turn, before))
    return bool(await answer if isawaitable(answer) else answer)


def _skipped(column: Column, turn: RowTurn) -> Cell:
    value, marks = checked(column.otherwise, column.name, turn.scope.limits)
    turn.scope.take_cell_state()
    meta = cell_meta(CellState.SKIPPED, kept=marks, completed_at=turn.rules.now_ms())
    return Cell(value, marks, meta)


def _taken(before: StoredCell) -> Cell:
    """The stored cell as it is: its times and its producer stay."""
    meta = dict(before.meta)
    marks = {pointer: _from_cache(mark) for pointer, mark in (meta.get(KEPT) or {}).items()}
    if marks:
        meta[KEPT] = marks
    if before.state is not CellState.SKIPPED:
        meta["reused"] = True
    if before.state is CellState.COMPLETED:
        meta["state"] = CellState.CACHED.value
    return Cell(before.value, marks, meta, meta.get("error") if before.state is CellState.FAILED else None)


def _from_cache(mark: dict[str, Any]) -> dict[str, Any]:
    return {**mark, "origin": Origin.CACHE.value} if "origin" in mark else mark


async def _made(column: Column, turn: RowTurn, before: StoredCell | None) -> Cell:
    shape = column.shape
    if shape is None:
        given = deepcopy(column.resolver) if isinstance(column.resolver, dict | list) else column.resolver
    else:
        given = column.resolver(turn.view, turn.ctx, **_extras(shape, turn, before))
        if isawaitable(given):
            given = await given
    scope = turn.scope
    scope.check()
    value, marks = checked(given, column.name, scope.limits)
    if column.is_stored:
        known_secrets.refuse(value, scope.context.org_id, f'column "{column.name}"', f"$.{column.name}")
    # What no provider could say now is no answer: it is no miss, and never fresh.
    is_answer = scope.stages.get(column.name, {}).get("state") != UNAVAILABLE
    completed_at = turn.rules.now_ms() if is_answer else None
    is_miss = is_answer and _is_miss(given, scope)
    producer = scope.take_producer()
    state = scope.take_cell_state()
    meta = cell_meta(
        CellState.MISSED if is_miss else state,
        kept=marks,
        completed_at=completed_at,
        producer=producer,
        reused=state is CellState.CACHED,
        steps=scope.take_stages(),
    )
    if column.stale_after_seconds is not None and completed_at is not None:
        ttl_s = _ttl_s(column, given)
        meta["stale_at"] = stale_at_ms(completed_at, ttl_s)
        meta["stale_after_seconds"] = None if ttl_s == _FOREVER else ttl_s
    return Cell(value, marks, meta)


def _is_miss(given: Any, scope: RowScope) -> bool:
    if given is None:
        return scope.asked > 0
    return isinstance(given, ToolResult) and given.status == NO_RESULT


def _extras(shape: CallShape, turn: RowTurn, before: StoredCell | None) -> dict[str, Any]:
    if shape.is_plain:
        return {}
    extras: dict[str, Any] = {"index": turn.position} if shape.index else {}
    if shape.previous_cell:
        extras["previous_cell"] = previous_cell(before)
    return extras


def _freshness(column: Column, before: StoredCell) -> Freshness:
    stale_after = column.stale_after_seconds
    if callable(stale_after):
        ttl_s = None if before.state is CellState.FAILED else _ttl_s(column, stored_value(before))
    else:
        ttl_s = stale_after
    return Freshness(recompute=column.recompute, recompute_on_error=column.recompute_on_error, ttl_s=ttl_s)


def _ttl_s(column: Column, value: Any) -> float:
    """How long a value of the column is fresh; infinite where its function says None."""
    stale_after = column.stale_after_seconds
    said = stale_after(value) if callable(stale_after) else stale_after
    if said is None:
        return _FOREVER
    if not is_seconds(said):
        raise PlayDefinitionError(
            f'column "{column.name}": its stale_after_seconds gave {said!r:.80}; it gives a number of seconds, '
            "0 or more, or None for a value that never goes stale"
        )
    return said


def checked(value: Any, column: str, limits: Limits) -> tuple[Any, Marks]:
    """The cell's plain value, and the marks of the tool results and datasets in it."""
    value, marks = _plain(value, f"$.{column}", limits.value_depth)
    if marks or type(value) in (str, list, dict, tuple):
        size = len(json_value.dumps(value)) + (len(json_value.dumps(marks)) if marks else 0)
        if size > limits.cell_bytes:
            path, part = json_value.heaviest(value, f"$.{column}")
            raise JsonValueError(
                path,
                f"{size:,} bytes are more than a cell holds ({limits.cell_bytes:,}); {part:,} of them are here",
            )
    return value, marks


def _plain(value: Any, path: str, depth: int) -> tuple[Any, Marks]:
    """Most values are plain: one walk. Only what is refused is searched for kept values."""
    marks: Marks = {}
    try:
        if not isinstance(value, KeptValue):
            return json_value.check(value, path=path, max_depth=depth), marks
    except JsonValueError:
        value, marks = plain(value, max_depth=depth)
        if not marks:
            raise
    else:
        value, marks = plain(value, max_depth=depth)
    return json_value.check(value, path=path, max_depth=depth), marks
