"""Step programs: `steps().step(name, resolver).returns(...)`, conditions and waterfalls, as values."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from runtime.context.program import (
    ATTEMPTS,
    CONTINUE,
    FAIL,
    ON_UNAVAILABLE,
    Conditional,
    ProgramStep,
    StepProgram,
    resolver_shape,
)
from runtime.context.run_program import is_found, run_program, step_column
from runtime.errors import PlayDefinitionError
from runtime.model.resolver import shape_of
from runtime.play import Column


class Program(StepProgram):
    """`step` and `returns` give a new program; itself it never changes."""

    __slots__ = ()

    def step(self, name: str, resolver: Any) -> "Program":
        """The program with one more step; its value is seen by later ones as `row[name]`."""
        if not isinstance(name, str) or not name.strip() or name == ATTEMPTS:
            raise PlayDefinitionError(
                f'a step of a program is named by non-empty text other than "{ATTEMPTS}", not {name!r:.80}'
            )
        if any(known.name == name for known in self.steps):
            raise PlayDefinitionError(f'step "{name}" is added twice; give one another name')
        if hasattr(resolver, "__await__"):
            raise PlayDefinitionError(
                f'step "{name}" was given a coroutine: pass a function, `lambda row, ctx: ...`, that makes it'
            )
        shape = resolver_shape(resolver, f'step "{name}": its resolver')
        return replace(self, steps=(*self.steps, ProgramStep(name=name, resolver=resolver, shape=shape)))

    def returns(self, resolver: Callable[..., Any]) -> "Program":
        """The program whose value is what `resolver(row, ctx)` makes of the input and all steps."""
        if not callable(resolver):
            raise PlayDefinitionError(
                f"steps().returns takes a function `(row, ctx)`, not {type(resolver).__name__}"
            )
        return replace(
            self, result=resolver, result_shape=shape_of(resolver, "steps().returns: its resolver")
        )

    def as_column(self, name: str) -> Column:
        """The column whose value is the program's."""
        if not self.steps and self.result is None:
            raise PlayDefinitionError(
                f'"{name}" is a steps() without a step: add one, steps().step("first", resolver)'
            )

        async def run(row: Any, ctx: Any, *, index: int = 0) -> Any:
            return await run_program(self, row, ctx, path=(name,), index=index)

        return Column(name, run)

    def as_columns(self) -> tuple[Column, ...]:
        """Each step as a column of its own."""
        if self.result is not None:
            raise PlayDefinitionError(
                "with_columns makes a column of each step, so a program with returns(...) can't be given: "
                'use with_column("name", program)'
            )
        return tuple(step_column(step, passes=self.continues) for step in self.steps)


def steps(*, on_unavailable: str = FAIL) -> Program:
    """An empty program. `on_unavailable="continue"`: a provider that can't serve now leaves its step empty."""
    if on_unavailable not in ON_UNAVAILABLE:
        raise PlayDefinitionError(
            f'steps(on_unavailable=) is "fail" or "continue" (the step is empty, later ones go on), '
            f"not {on_unavailable!r:.80}"
        )
    return Program(on_unavailable=on_unavailable)


def run_if(predicate: Callable[..., Any], resolver: Any, *, otherwise: Any = None) -> Conditional:
    """`resolver` where `predicate(row)` or `predicate(row, ctx)` says yes, elsewhere `otherwise`."""
    if isinstance(resolver, Conditional):
        raise PlayDefinitionError("run_if within run_if: join the two predicates with `and`")
    if not callable(predicate):
        raise PlayDefinitionError(
            f"run_if takes a function of the row first, not {type(predicate).__name__}: "
            "run_if(lambda row: ..., resolver)"
        )
    return Conditional(
        predicate=predicate,
        resolver=resolver,
        otherwise=otherwise,
        shape=resolver_shape(resolver, "run_if: its resolver"),
        condition=shape_of(predicate, "run_if: its predicate", ctx_optional=True),
    )


def waterfall(legs: Mapping[str, Any], *, found: Callable[[Any], Any] = is_found) -> Program:
    """Ask one after the other until one gives something; a provider that can't serve now is passed over.

    Gives `{"value": ..., "from": name or None, "waterfall_attempts": {...}}`.
    """
    if not isinstance(legs, Mapping) or not legs:
        raise PlayDefinitionError(
            'waterfall takes its legs in order by name: waterfall({"first": resolver, "second": resolver})'
        )
    program, names = steps(on_unavailable=CONTINUE), tuple(legs)
    for position, (name, resolver) in enumerate(legs.items()):
        earlier = names[:position]
        program = program.step(name, run_if(_none_of(earlier, found), resolver) if earlier else resolver)
    return program.returns(_first_of(names, found))


def _none_of(names: tuple[str, ...], found: Callable[[Any], Any]) -> Callable[[Mapping[str, Any]], bool]:
    return lambda row: not any(found(row[name]) for name in names)


def _first_of(names: tuple[str, ...], found: Callable[[Any], Any]) -> Callable[[Any, Any], dict[str, Any]]:
    def first(row: Mapping[str, Any], ctx: Any) -> dict[str, Any]:
        name = next((name for name in names if found(row[name])), None)
        return {"value": None if name is None else row[name], "from": name}

    return first
