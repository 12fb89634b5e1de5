"""What an author's function takes: looked at once, where it is declared. Pure."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from runtime.errors import PlayDefinitionError

_EXTRAS = ("index", "previous_cell")


@dataclass(frozen=True, slots=True, kw_only=True)
class CallShape:
    """`takes_ctx`: the second positional argument; the others are keyword-only and passed if declared."""

    takes_ctx: bool = True
    index: bool = False
    previous_cell: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether it is called with positional arguments alone."""
        return not (self.index or self.previous_cell)


def shape_of(function: Callable[..., Any], where: str, *, ctx_optional: bool = False) -> CallShape:
    """How to call `function` with a row; raises PlayDefinitionError if it can't be."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # written in C: it says nothing, and takes what it takes
        return CallShape()
    declared = {
        name
        for name, parameter in signature.parameters.items()
        if name in _EXTRAS and parameter.kind is inspect.Parameter.KEYWORD_ONLY
    }
    for given in (2, 1) if ctx_optional else (2,):
        if _takes(signature, given, declared):
            return CallShape(
                takes_ctx=given == 2, index="index" in declared, previous_cell="previous_cell" in declared
            )
    form = "(row) or (row, ctx)" if ctx_optional else "(row, ctx)"
    raise PlayDefinitionError(
        f"{where} takes {form}, and as keyword-only parameters `index` and `previous_cell` if it wants them "
        f"(write `*, index`); this one is {_named(function)}{signature}"
    )


def _takes(signature: inspect.Signature, positional: int, extras: set[str]) -> bool:
    try:
        signature.bind(*(None,) * positional, **dict.fromkeys(extras))
    except TypeError:
        return False
    return True


def _named(function: Callable[..., Any]) -> str:
    return getattr(function, "__name__", type(function).__name__)
