"""Values that are more than their JSON: told from plain data by marks kept beside it, never inside it. Pure."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from runtime.errors import JsonValueError

Marks = dict[str, dict[str, Any]]
"""JSON pointer into a value -> what makes the value there alive again."""

_CONTAINERS = (dict, list, tuple)
_MOST_MARKS = 100_000


class KeptValue(ABC):
    """A tool result, a dataset: stored as plain JSON, alive again where it is read."""

    __slots__ = ()

    @abstractmethod
    def to_json(self) -> Any:
        """Its plain JSON value; a copy of its own each time."""

    @abstractmethod
    def mark(self) -> dict[str, Any]:
        """What else it needs to come back; a JSON object with a `kind`."""


def plain(value: Any, *, max_depth: int = 500) -> tuple[Any, Marks]:
    """`value` with what it holds of kept values as JSON, and their marks. Cycles and other kinds stay as they are."""
    marks: Marks = {}
    try:
        return _plain(value, "", marks, max_depth, set()), marks
    except RecursionError:
        return value, {}


def _plain(value: Any, pointer: str, marks: Marks, depth: int, clean: set[int]) -> Any:
    """The same object where nothing in it is kept: who checks it next meets what the author made.

    `clean`: containers without a kept value, which are searched once wherever they stand.
    """
    if isinstance(value, KeptValue):
        if len(marks) >= _MOST_MARKS:
            raise JsonValueError("$", f"more than {_MOST_MARKS:,} tool results and the like are in one value")
        marks[pointer] = value.mark()
        return value.to_json()
    if type(value) not in _CONTAINERS or depth <= 0 or id(value) in clean:
        return value
    is_dict = isinstance(value, dict)
    made: dict[Any, Any] = {}
    for name, item in value.items() if is_dict else enumerate(value):  # one frame a level
        made[name] = _plain(item, f"{pointer}/{escaped(name)}", marks, depth - 1, clean)
    if all(made[name] is item for name, item in (value.items() if is_dict else enumerate(value))):
        clean.add(id(value))
        return value
    return made if is_dict else list(made.values())


def escaped(name: Any) -> str:
    """A name as one step of a JSON pointer."""
    return str(name).replace("~", "~0").replace("/", "~1")


def steps_of(pointer: str) -> list[str]:
    """The names of a JSON pointer."""
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def replaced(value: Any, steps: list[str], make: Any) -> Any:
    """A copy of `value` with `make(what is there)` at `steps`; the same value where the steps lead nowhere."""
    if not steps:
        return make(value)
    step, rest = steps[0], steps[1:]
    if isinstance(value, Mapping) and step in value:
        return {**value, step: replaced(value[step], rest, make)}
    if isinstance(value, list) and step.isdecimal() and int(step) < len(value):
        copy = list(value)
        copy[int(step)] = replaced(copy[int(step)], rest, make)
        return copy
    return value
