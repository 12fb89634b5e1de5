"""Columns as an author declares them: checked where they are written, before any row runs."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from runtime.errors import JsonValueError, PlayDefinitionError
from runtime.model.call_options import is_seconds
from runtime.model.json_value import check
from runtime.model.kept_value import plain
from runtime.play import Column, Predicate, StaleAfter
from runtime.policy.rows_input import RESERVED_PREFIXES

NAME_BYTES = 63  # what Postgres keeps of an identifier


@runtime_checkable
class MakesColumn(Protocol):
    """What stands for a resolver and knows more than one: a step program, a condition with its resolver."""

    def as_column(self, name: str) -> Column: ...


@runtime_checkable
class MakesColumns(Protocol):
    """A program whose steps become columns of their own, in its order."""

    def as_columns(self) -> Iterable[Column]: ...


def column(
    where: str,
    name: str,
    resolver: Any,
    *,
    run_if: Predicate | None = None,
    recompute: bool = False,
    recompute_on_error: bool = False,
    stale_after_seconds: StaleAfter | None = None,
) -> Column:
    """The declared column; raises PlayDefinitionError that names it and what is wrong."""
    name = text_name(name, f"{where}: a column")
    here = f'{where}: column "{name}"'
    _check_flags(here, recompute=recompute, recompute_on_error=recompute_on_error)
    if run_if is not None and not callable(run_if):
        raise PlayDefinitionError(f"{here}: run_if is a function of the row, not {run_if!r:.80}")
    if not (stale_after_seconds is None or callable(stale_after_seconds) or is_seconds(stale_after_seconds)):
        raise PlayDefinitionError(
            f"{here}: stale_after_seconds is a number of seconds, 0 or more, or a function of the value that gives "
            f"one (or None: never stale), not {stale_after_seconds!r:.80}"
        )
    made = _told(here, lambda: _made(here, name, resolver))
    if run_if is not None and made.run_if is not None:
        raise PlayDefinitionError(f"{here} has two conditions: its own run_if and the option; keep one")
    return checked_column(
        where,
        _told(
            here,
            lambda: replace(
                made,
                run_if=run_if or made.run_if,
                recompute=recompute or made.recompute,
                recompute_on_error=recompute_on_error or made.recompute_on_error,
                stale_after_seconds=made.stale_after_seconds
                if stale_after_seconds is None
                else stale_after_seconds,
            ),
        ),
    )


def columns(where: str, program: Any) -> Sequence[Column]:
    """The columns of a step program, or of a dict of names to resolvers and constants."""
    if isinstance(program, Mapping):
        return [column(where, name, resolver) for name, resolver in program.items()]
    if isinstance(program, MakesColumns) and not isinstance(program, type):
        return [checked_column(where, one) for one in program.as_columns()]
    raise PlayDefinitionError(
        f"{where}: with_columns takes steps() or a dict of column names to resolvers, not {type(program).__name__}"
    )


def checked_column(where: str, made: Column) -> Column:
    """The column if its name and options make sense together."""
    name = text_name(made.name, f"{where}: a column")
    if name.startswith(RESERVED_PREFIXES):
        raise PlayDefinitionError(
            f"{where}: a column can't be named \"{name}\": names with that prefix are playlane's"
        )
    if made.stale_after_seconds is not None and not made.is_stored:
        raise PlayDefinitionError(
            f'{where}: column "{name}" can\'t be fresh: a name that begins with "_" is scratch, and no sheet keeps it; '
            "give it another name or take stale_after_seconds away"
        )
    return made if made.name == name else replace(made, name=name)


def text_name(name: Any, where: str) -> str:
    """The name trimmed; raises PlayDefinitionError if no identifier can be made of it."""
    if not isinstance(name, str) or not name.strip():
        raise PlayDefinitionError(f"{where} is named by non-empty text, not {name!r:.80}")
    trimmed = name.strip()
    if not trimmed.isprintable() or len(trimmed.encode("utf-8", "replace")) > NAME_BYTES:
        raise PlayDefinitionError(
            f"{where} name {name!r:.80} must be printable and at most {NAME_BYTES} bytes"
        )
    return trimmed


def _made(here: str, name: str, resolver: Any) -> Column:
    if isinstance(resolver, MakesColumn) and not isinstance(resolver, type):
        return replace(resolver.as_column(name), name=name)
    if not callable(resolver):
        resolver = _constant(here, resolver)
    return Column(name, resolver)


def _constant(here: str, value: Any) -> Any:
    try:
        check(plain(value)[0])
    except JsonValueError as error:
        raise PlayDefinitionError(
            f"{here} is a resolver (row, ctx) -> value or a constant JSON value, not {type(value).__name__} "
            f"({error}): write `lambda row, ctx: ...`"
        ) from error
    return value


def _check_flags(here: str, **flags: Any) -> None:
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise PlayDefinitionError(f"{here}: {name} is True or False, not {value!r:.80}")


def _told(here: str, make: Callable[[], Column]) -> Column:
    """What a column says of its functions, with its dataset named before it."""
    try:
        return make()
    except PlayDefinitionError as error:
        if str(error).startswith(here):
            raise
        where = here[: here.rindex(": column ")]
        raise PlayDefinitionError(f"{where}: {error}") from error
