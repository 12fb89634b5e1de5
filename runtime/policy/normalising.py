"""Applies what a tool declares about equal inputs, before a call gets its key."""

from collections.abc import Callable
from typing import Any

from runtime.model.tool import Normalise, ToolMetadata

_STEPS: dict[Normalise, Callable[[str], str]] = {
    Normalise.TRIM: str.strip,
    Normalise.LOWER: str.lower,
    Normalise.STRIP_TRAILING_DOT: lambda text: text.removesuffix("."),
}


def normalised(metadata: ToolMetadata, input: Any) -> Any:
    """`input` with the declared steps done in their order; the same object where nothing is declared."""
    if not metadata.normalise or not isinstance(input, dict):
        return input
    changed = dict(input)
    for rule in metadata.normalise:
        value = changed.get(rule.field)
        if isinstance(value, str):
            for step in rule.steps:
                value = _STEPS[step](value)
            changed[rule.field] = value
    return changed
