"""A step program as values: steps in order, conditions, what it returns."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from runtime.model.resolver import CallShape, shape_of
from runtime.play import Column

ATTEMPTS = "waterfall_attempts"
FAIL, CONTINUE = "fail", "continue"
ON_UNAVAILABLE = (FAIL, CONTINUE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditional:
    """A resolver that runs where `predicate(row)` says yes; elsewhere the value is `otherwise`."""

    predicate: Callable[..., Any]
    resolver: Any
    otherwise: Any = None
    condition: CallShape = field(compare=False)
    shape: CallShape | None = field(compare=False)  # of a resolver that is a function

    def as_column(self, name: str) -> Column:
        """The column of that name: its cell is `skipped` where the predicate says no."""
        resolver = self.resolver
        if isinstance(resolver, StepProgram):
            resolver = resolver.as_column(name).resolver
        return Column(name, resolver, run_if=self.predicate, otherwise=self.otherwise)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramStep:
    """`resolver`: a function `(row, ctx)`, a Conditional, a program, or a constant; `shape` of a function."""

    name: str
    resolver: Any
    shape: CallShape | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepProgram:
    """Steps in order, each seeing the values of those before it."""

    steps: tuple[ProgramStep, ...] = ()
    result: Callable[..., Any] | None = None
    result_shape: CallShape = field(default=CallShape(), compare=False)
    on_unavailable: str = FAIL

    @property
    def continues(self) -> bool:
        """Whether a provider that can't serve now is a leg of the program instead of a failure."""
        return self.on_unavailable == CONTINUE

    def as_column(self, name: str) -> Column:
        """The column whose value is the program's."""
        raise NotImplementedError


def resolver_shape(resolver: Any, where: str) -> CallShape | None:
    """How to call a resolver that is a function; None for a program, a condition or a constant."""
    if isinstance(resolver, StepProgram | Conditional) or not callable(resolver):
        return None
    return shape_of(resolver, where)
