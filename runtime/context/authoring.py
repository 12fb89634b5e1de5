"""Checks of what authors pass to `ctx`; each refusal names the call, the field and the fix."""

import math
from collections.abc import Mapping
from typing import Any

from runtime.context.asks import StepAsk
from runtime.errors import JsonValueError, PlayDefinitionError, UnknownPlayError
from runtime.model.json_value import check
from runtime.model.kept_value import plain
from runtime.play import PlayDefinition, PlayRegistry

ID_CHARS = 200


def is_text_id(id: Any) -> bool:
    """Whether it may name a piece of work."""
    return isinstance(id, str) and len(id) <= ID_CHARS and bool(id.strip()) and id.isprintable()


def text_id(id: Any, where: str) -> str:
    """A name that an author gives to a piece of work."""
    if is_text_id(id):
        return id.strip()
    raise PlayDefinitionError(
        f"{where} is named by printable text of 1 to {ID_CHARS} characters that is the same in every replay, "
        f"not {id!r:.80}"
    )


def json_input(value: Any, where: str) -> Any:
    """A JSON value; earlier results in it are passed as their data."""
    given = {} if value is None else plain(value)[0]
    try:
        return check(given)
    except JsonValueError as bad:
        raise JsonValueError(bad.path, f"the input of {where} can't be kept: {bad.reason}") from bad


def row_of(value: Any, where: str) -> Mapping[str, Any]:
    """An object with named values, as a step program takes it."""
    if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
        return value
    raise PlayDefinitionError(
        f"{where}: ctx.run_steps(program, input) runs over one object with named values, not {type(value).__name__}"
    )


def seconds(value: Any, name: str, where: str) -> float | None:
    """None, or a number of seconds from 0 on."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or (is_number and math.isfinite(value) and value >= 0):
        return value
    raise PlayDefinitionError(
        f"{where}: {name} is None, or a number of seconds from 0 (only since the run began), not {value!r:.80}"
    )


def step_ask(where: str, id: Any, fn: Any, semantic_key: Any, stale_after_seconds: Any) -> StepAsk:
    """What `ctx.step` was told, checked."""
    name = text_id(id, f"{where}: a ctx.step")
    here = f'{where}: ctx.step("{name}")'
    if not callable(fn):
        hint = " (pass the function itself, not what it gives)" if hasattr(fn, "__await__") else ""
        raise PlayDefinitionError(f"{here} takes a function without arguments, not {type(fn).__name__}{hint}")
    if semantic_key is not None and not (isinstance(semantic_key, str) and semantic_key.strip()):
        raise PlayDefinitionError(
            f"{here}: semantic_key is text that says what the work is, not {semantic_key!r:.80}"
        )
    return StepAsk(
        id=name,
        run=fn,
        semantic_key=semantic_key,
        stale_after_seconds=seconds(stale_after_seconds, "stale_after_seconds", here),
    )


def play_named(registry: PlayRegistry, play: Any, where: str) -> PlayDefinition:
    """The play meant by its name or by its decorated function."""
    if isinstance(play, str) and play:
        try:
            return registry.find(play)
        except UnknownPlayError as error:
            raise PlayDefinitionError(f"{where}: {error}") from error
    found = registry.of_function(play)
    if found is None:
        raise PlayDefinitionError(
            f"{where} takes the name of a play or its decorated function, not {play!r:.80}: write @play above it"
        )
    return found
