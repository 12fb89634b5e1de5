"""Values and lists out of a tool's result by path. Pure.

A path is names joined by dots: `people.0.email`, `people[0].email`; `[*]` tries every item in turn. It begins in
the data, or at one of the roots that metadata spells: `raw`, `meta`, `data` and the longer forms below.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

_STEP = re.compile(r"[^.\[\]]+|\[[^\]]*\]")
_WILD = frozenset({"*", ""})
_DATA_ROOTS = (("toolResponse", "raw"), ("toolOutput", "raw"), ("result", "data"), ("data",), ("result",))
_RAW_ROOTS = (("toolResponse", "rawV2"), ("toolOutput", "rawV2"), ("raw",))
_META_ROOTS = (("toolResponse", "meta"), ("toolOutput", "meta"), ("meta",))


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultParts:
    """A result as paths see it."""

    data: Any = field(repr=False)
    raw: Any = field(default=None, repr=False)
    meta: Any = field(default=None, repr=False)


def first_value(parts: ResultParts, paths: Iterable[str]) -> Any:
    """The first value at any of `paths` that says something; None if there is none. False and 0 say something."""
    for path in paths:
        for value in values_at(parts, path):
            if not is_blank(value):
                return value
    return None


def values_at(parts: ResultParts, path: str) -> Iterator[Any]:
    """All values at `path`, in order; a name that the data itself has goes before a root of that name."""
    steps = _steps(path)
    yield from _walk(parts.data, steps)
    for roots, root in ((_DATA_ROOTS, parts.data), (_RAW_ROOTS, parts.raw), (_META_ROOTS, parts.meta)):
        for names in roots:
            if steps[: len(names)] == names:
                yield from _walk(root, steps[len(names) :])
                return


def list_at(parts: ResultParts, path: str, keys: Sequence[str] | None = None) -> list[dict[str, Any]]:
    """The objects of the list at `path`, cut to `keys` if some are named; empty where no list is."""
    items = next((value for value in values_at(parts, path) if isinstance(value, list)), [])
    objects = [item for item in items if isinstance(item, dict)]
    return [_picked(item, keys) for item in objects] if keys else objects


def rows_at(parts: ResultParts, path: str) -> list[dict[str, Any]]:
    """The list at `path` as rows: an item that is no object becomes `{"value": item}`."""
    items = next((value for value in values_at(parts, path) if isinstance(value, list)), [])
    return [item if isinstance(item, dict) else {"value": item} for item in items]


def list_name(path: str) -> str:
    """The name that authors use for the list at `path`: its last step that is a name."""
    names = [step for step in _steps(path) if step not in _WILD and not step.isdigit()]
    return names[-1] if names else path


def is_blank(value: Any) -> bool:
    """Whether a value says nothing: null, blank text, an empty list or object."""
    if isinstance(value, str):
        return not value.strip()
    return value is None or (isinstance(value, (list, dict)) and not value)


def _steps(path: str) -> tuple[str, ...]:
    found = _STEP.findall(path.removeprefix("$"))
    return tuple(step[1:-1].strip("'\"") if step.startswith("[") else step for step in found)


def _walk(value: Any, steps: tuple[str, ...]) -> Iterator[Any]:
    if not steps:
        yield value
        return
    step, rest = steps[0], steps[1:]
    if isinstance(value, Mapping):
        if step in value:
            yield from _walk(value[step], rest)
    elif isinstance(value, list):
        if step in _WILD:
            for item in value:
                yield from _walk(item, rest)
        elif step.isdecimal() and int(step) < len(value):
            yield from _walk(value[int(step)], rest)


def _picked(item: Mapping[str, Any], keys: Sequence[str]) -> dict[str, Any]:
    return {key: item[key] for key in keys if key in item}
