"""Runs a step program over a row, in a resolver, a body or a child play: its calls are those of its place."""

from collections.abc import Iterator, Mapping
from inspect import isawaitable
from typing import Any

from runtime.context.program import ATTEMPTS, Conditional, ProgramStep, StepProgram
from runtime.context.scope import current_scope
from runtime.context.tool_result import ToolResult
from runtime.errors import PlayDefinitionError
from runtime.model.error_text import named
from runtime.model.resolver import CallShape
from runtime.model.tool_output import NO_RESULT
from runtime.play import Column
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.unavailability import unavailable_leg

UNAVAILABLE = "unavailable"


class ProgramRow(Mapping[str, Any]):
    """The input and the values of the steps so far, read only."""

    __slots__ = ("_input", "_made")

    def __init__(self, input: Mapping[str, Any], made: Mapping[str, Any]) -> None:
        self._input = input
        self._made = made

    def __getitem__(self, name: str) -> Any:
        if name in self._made:
            return self._made[name]
        try:
            return self._input[name]
        except KeyError:
            known = ", ".join(sorted(map(str, self)))
            raise KeyError(f"no column or earlier step {name!r}; there is {known}") from None

    def __iter__(self) -> Iterator[str]:
        yield from self._input
        yield from (name for name in self._made if name not in self._input)

    def __len__(self) -> int:
        return len(self._input) + sum(name not in self._input for name in self._made)


def checked_program(program: Any, where: str) -> StepProgram:
    """The program, if it is one that can be run."""
    if not isinstance(program, StepProgram):
        raise PlayDefinitionError(
            f"{where}: ctx.run_steps(program, input) takes what steps() or waterfall() gave, "
            f"not {type(program).__name__}"
        )
    return program


async def run_program(
    program: StepProgram, row: Mapping[str, Any], ctx: Any, *, path: tuple[str, ...] = (), index: int = 0
) -> Any:
    """What the program returns, or its steps' values by name; with `waterfall_attempts` where it passes legs over."""
    if len(path) >= DEFAULT_LIMITS.program_depth:
        raise PlayDefinitionError(
            f"steps() within steps() more than {DEFAULT_LIMITS.program_depth} deep: {'.'.join(path)}"
        )
    made: dict[str, Any] = {}
    attempts: dict[str, dict[str, Any]] = {}
    for step in program.steps:
        seen = ProgramRow(row, dict(made))
        try:
            value, ran = await _value(step, seen, ctx, (*path, step.name), index)
        except Exception as error:
            leg = unavailable_leg(error) if program.continues else None
            _stage((*path, step.name), "failed", leg or _said(error), row=seen)
            if leg is None:
                raise
            value, attempts[step.name] = None, leg
        else:
            attempts[step.name] = _attempt(value, ran)
        made[step.name] = value
    if program.result is None:
        given: Any = dict(made)
    else:
        given = await _called(program.result, program.result_shape, ProgramRow(row, made), ctx, index)
    if any(one["status"] == UNAVAILABLE for one in attempts.values()) and not any(
        map(is_found, made.values())
    ):
        _stage(path, UNAVAILABLE)  # nobody said that there is none: no cell keeps it as an answer
    if program.continues and isinstance(given, dict) and ATTEMPTS not in given:
        return {**given, ATTEMPTS: attempts}
    return given


def is_found(value: Any) -> bool:
    """Whether a step gave something: not None, not empty text, not a tool's `no_result`."""
    if isinstance(value, ToolResult):
        return value.status != NO_RESULT and value.data is not None
    return value is not None and value != ""


def step_column(step: ProgramStep, *, passes: bool) -> Column:
    """One step as a column; `passes`: a provider that can't serve now leaves its cell empty."""
    if not passes:
        return Column(step.name, step.resolver) if step.shape else _as_column(step)
    inner = step.resolver.resolver if isinstance(step.resolver, Conditional) else step.resolver
    shape = step.resolver.shape if isinstance(step.resolver, Conditional) else step.shape

    async def run(row: Any, ctx: Any, *, index: int = 0) -> Any:
        try:
            return await run_resolver(inner, shape, row, ctx, index=index, path=(step.name,))
        except Exception as error:
            leg = unavailable_leg(error)
            if leg is None:
                raise
            _stage((step.name,), UNAVAILABLE, leg)
            return None

    if isinstance(step.resolver, Conditional):
        return Column(step.name, run, run_if=step.resolver.predicate, otherwise=step.resolver.otherwise)
    return Column(step.name, run)


def _as_column(step: ProgramStep) -> Column:
    resolver = step.resolver
    return resolver.as_column(step.name) if hasattr(resolver, "as_column") else Column(step.name, resolver)


async def run_resolver(
    resolver: Any, shape: CallShape | None, row: Any, ctx: Any, *, index: int, path: tuple[str, ...]
) -> Any:
    """A function's value, a program's, or the constant itself."""
    if isinstance(resolver, StepProgram):
        return await run_program(resolver, row, ctx, path=path, index=index)
    if shape is None:
        return resolver
    return await _called(resolver, shape, row, ctx, index)


async def _value(
    step: ProgramStep, row: Mapping[str, Any], ctx: Any, path: tuple[str, ...], index: int
) -> tuple[Any, bool]:
    """(value, whether it ran)"""
    resolver, branch = step.resolver, None
    shape = step.shape
    if isinstance(resolver, Conditional):
        if not await decided(resolver, row, ctx, index):
            _stage(path, "skipped", branch="else", row=row)
            return resolver.otherwise, False
        resolver, shape, branch = resolver.resolver, resolver.shape, "run"
    value = await run_resolver(resolver, shape, row, ctx, index=index, path=path)
    _stage(path, "completed", branch=branch, row=row)
    return value, True


async def decided(conditional: Conditional, row: Any, ctx: Any, index: int) -> bool:
    """What its predicate says of the row."""
    condition = conditional.condition
    answer = conditional.predicate(
        *((row, ctx) if condition.takes_ctx else (row,)), **_extras(condition, index)
    )
    return bool(await answer if isawaitable(answer) else answer)


async def _called(function: Any, shape: CallShape, row: Any, ctx: Any, index: int) -> Any:
    value = function(row, ctx, **_extras(shape, index))
    return await value if isawaitable(value) else value


def _extras(shape: CallShape, index: int) -> dict[str, Any]:
    if shape.is_plain:
        return {}
    extras: dict[str, Any] = {"index": index} if shape.index else {}
    if shape.previous_cell:
        extras["previous_cell"] = None
    return extras


def _attempt(value: Any, ran: bool) -> dict[str, Any]:
    if not ran:
        return {"status": "skipped"}
    if value is None or (isinstance(value, ToolResult) and value.status == NO_RESULT):
        return {"status": "no_result"}
    return {"status": "completed", "result": value}


def _said(error: Exception) -> dict[str, Any]:
    return {
        "code": str(getattr(error, "code", "resolver_error")),
        "message": named(error)[:500],
    }


def _stage(
    path: tuple[str, ...],
    state: str,
    error: dict[str, Any] | None = None,
    *,
    branch: str | None = None,
    row: Mapping[str, Any] | None = None,
) -> None:
    scope = current_scope.get()
    if scope is None:
        return
    reads = [name for name in row if not name.startswith("_")] if row is not None and scope.captures else None
    scope.stage(
        ".".join(path), state, error, branch=branch, reads=reads and reads[: DEFAULT_LIMITS.reads_per_row]
    )
