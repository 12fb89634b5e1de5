"""`@play`: names an async function `(ctx, input)` so that any worker can run it."""

import hashlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from runtime.errors import PlayDefinitionError, UnknownPlayError

PlayFunction = Callable[[Any, Any], Awaitable[Any]]
Resolver = Callable[[Any, Any], Any]
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


class Column(NamedTuple):
    """One column of a dataset: `resolver(row, ctx)` makes its value, plainly or awaited."""

    name: str
    resolver: Resolver


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayDefinition:
    """A registered play. `source_hash` changes with any edit of the file that defines it."""

    name: str
    function: PlayFunction = field(repr=False)
    source_file: str
    source_hash: str


class PlayRegistry:
    """Plays by name; a name stands for one play only."""

    def __init__(self) -> None:
        self._plays: dict[str, PlayDefinition] = {}

    def add(self, definition: PlayDefinition) -> None:
        known = self._plays.get(definition.name)
        if known is not None:
            raise PlayDefinitionError(
                f'play "{definition.name}" is defined twice, in {known.source_file} and '
                f"{definition.source_file}: give one of them another name"
            )
        self._plays[definition.name] = definition

    def find(self, name: str) -> PlayDefinition:
        """The play of that name; raises UnknownPlayError."""
        definition = self._plays.get(name)
        if definition is None:
            known = ", ".join(sorted(self._plays)) or "none"
            raise UnknownPlayError(
                f'this worker has no play "{name}" (it has: {known}): load the module that defines it'
            )
        return definition

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._plays))


plays = PlayRegistry()


def play(name: str, *, registry: PlayRegistry = plays) -> Callable[[F], F]:
    """Register the decorated async function `(ctx, input)` under `name`; the function stays as it is."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PlayDefinitionError(
            f'a play is named by text such as "enrich_companies", not {name!r:.80}: write @play("name")'
        )

    def register(function: F) -> F:
        registry.add(define(name, function))
        return function

    return register


def define(name: str, function: Callable[..., Any]) -> PlayDefinition:
    """The definition of a play function, checked; registers nothing."""
    if not inspect.iscoroutinefunction(function):
        raise PlayDefinitionError(
            f'play "{name}" must be an async function: write `async def name(ctx, input)`'
        )
    try:
        inspect.signature(function).bind(None, None)
    except TypeError as error:
        raise PlayDefinitionError(f'play "{name}" must take exactly (ctx, input): {error}') from error
    source_file = function.__code__.co_filename
    return PlayDefinition(
        name=name, function=function, source_file=source_file, source_hash=_source_hash(function, source_file)
    )


def _source_hash(function: Callable[..., Any], source_file: str) -> str:
    """Digest of the defining file (its resolvers live there), or of the bare code where there is no file."""
    if sys.modules.get(function.__module__) is not None and Path(source_file).is_file():
        return hashlib.sha256(Path(source_file).read_bytes()).hexdigest()[:32]
    code = function.__code__
    return hashlib.sha256(code.co_code + repr((code.co_consts, code.co_names)).encode()).hexdigest()[:32]
