"""`@play`: names an async function `(ctx, input)` so that any worker can run it."""

import hashlib
import inspect
import re
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from runtime.errors import PlayDefinitionError, UnknownPlayError
from runtime.model.budget import NO_CAPS, Caps
from runtime.model.cell import SCRATCH_PREFIX
from runtime.model.resolver import CallShape, shape_of
from runtime.model.schedule import Schedule
from runtime.policy import budgeting, scheduling

PlayFunction = Callable[[Any, Any], Awaitable[Any]]
Resolver = Callable[..., Any]
Predicate = Callable[..., Any]
StaleAfter = float | Callable[[Any], float | None]
F = TypeVar("F", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a dataset: what makes its value, and when a stored one does.

    `resolver` is a function `(row, ctx)`, plain or async, or a constant; `otherwise` is the value where `run_if` says
    no.
    """

    name: str
    resolver: Any
    run_if: Predicate | None = None
    otherwise: Any = None
    recompute: bool = False
    recompute_on_error: bool = False
    stale_after_seconds: StaleAfter | None = None
    shape: CallShape | None = field(init=False, compare=False)  # None: a constant
    condition: CallShape = field(init=False, compare=False)
    is_stored: bool = field(init=False, compare=False)  # scratch columns are only seen by later ones

    def __post_init__(self) -> None:
        where = f'column "{self.name}": its'
        shape = shape_of(self.resolver, f"{where} resolver") if callable(self.resolver) else None
        object.__setattr__(self, "shape", shape)
        condition = CallShape()
        if self.run_if is not None:
            condition = shape_of(self.run_if, f"{where} run_if", ctx_optional=True)
        object.__setattr__(self, "condition", condition)
        object.__setattr__(self, "is_stored", not self.name.startswith(SCRATCH_PREFIX))

    @property
    def reads_stored(self) -> bool:
        """Whether making a cell needs the one that an earlier run left."""
        shapes = (self.shape, self.condition)
        return self.stale_after_seconds is not None or any(one and one.previous_cell for one in shapes)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayDefinition:
    """A registered play. `source_hash` changes with any edit of the file that defines it."""

    name: str
    function: PlayFunction = field(repr=False)
    source_file: str
    source_hash: str
    caps: Caps = NO_CAPS
    schedule: Schedule | None = None


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

    def of_function(self, function: Any) -> PlayDefinition | None:
        """The play whose decorated function this is."""
        return next((one for one in self._plays.values() if one.function is function), None)

    def all(self) -> tuple[PlayDefinition, ...]:
        return tuple(self._plays.values())

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._plays))


plays = PlayRegistry()


def play(
    name: str,
    *,
    registry: PlayRegistry = plays,
    max_credits: float | None = None,
    max_tool_calls: int | None = None,
    max_retries: int | None = None,
    max_child_plays: int | None = None,
    max_depth: int | None = None,
    cron: str | None = None,
    timezone: str | None = None,
) -> Callable[[F], F]:
    """Register the decorated async function `(ctx, input)` under `name`; the function stays as it is.

    `max_…`: what each of its runs, child plays included, may use, unless the run's own options say otherwise.
    `cron`, five fields in `timezone` (UTC if not given): a run starts by itself at each tick.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise PlayDefinitionError(
            f'a play is named by text such as "enrich_companies", not {name!r:.80}: write @play("name")'
        )

    caps = budgeting.checked(
        Caps(
            credits=max_credits,
            tool_calls=max_tool_calls,
            retries=max_retries,
            child_plays=max_child_plays,
            depth=max_depth,
        ),
        f'play "{name}"',
    )

    schedule = scheduling.checked(cron, timezone, f'play "{name}"')

    def register(function: F) -> F:
        registry.add(replace(define(name, function, caps), schedule=schedule))
        return function

    return register


def define(name: str, function: Callable[..., Any], caps: Caps = NO_CAPS) -> PlayDefinition:
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
        name=name,
        function=function,
        source_file=source_file,
        source_hash=_source_hash(function, source_file),
        caps=caps,
    )


def _source_hash(function: Callable[..., Any], source_file: str) -> str:
    """Digest of the defining file (its resolvers live there), or of the bare code where there is no file."""
    if sys.modules.get(function.__module__) is not None and Path(source_file).is_file():
        return hashlib.sha256(Path(source_file).read_bytes()).hexdigest()[:32]
    code = function.__code__
    return hashlib.sha256(code.co_code + repr((code.co_consts, code.co_names)).encode()).hexdigest()[:32]
