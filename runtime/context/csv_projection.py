"""Which columns of a CSV file a play sees, and under which names. Rows keep the identity that the file gives them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runtime.errors import CsvError, PlayDefinitionError
from runtime.policy.rows_input import SourcedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """First `rename` (old name -> new name), then `columns` keeps those and their order; `required` must be there."""

    columns: tuple[str, ...] = ()
    rename: tuple[tuple[str, str], ...] = ()
    required: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.columns or self.rename or self.required)

    def described(self) -> dict[str, Any]:
        """What a replay must ask for again; empty for the whole file as it is."""
        parts = {"columns": list(self.columns), "rename": dict(self.rename), "required": list(self.required)}
        return {name: part for name, part in parts.items() if part}

    def over(self, names: tuple[str, ...], *, file: str) -> "Projected":
        """For a file with these columns; raises CsvError for a column that isn't there or a name used twice."""
        known = set(names)
        for old, _ in self.rename:
            if old not in known:
                raise _missing(file, old, names, "rename")
        new_names = dict(self.rename)
        renamed = {name: new_names.get(name, name) for name in names}
        taken: dict[str, str] = {}
        for old, new in renamed.items():
            if new in taken:
                raise CsvError(
                    f'{file}, line 1, column {names.index(old) + 1}: "{old:.80}" and "{taken[new]:.80}" would both be '
                    f'called "{new:.80}"; no tool was called: rename one of them to something else'
                )
            taken[new] = old
        for asked, option in (
            *((name, "columns") for name in self.columns),
            *((n, "required") for n in self.required),
        ):
            if asked not in taken:
                raise _missing(file, asked, tuple(taken), option)
        kept = self.columns or tuple(taken)
        return Projected(pairs=tuple((taken[name], name) for name in kept))


@dataclass(frozen=True, slots=True, kw_only=True)
class Projected:
    """(name in the file, name in the rows) of every column that is kept, in order."""

    pairs: tuple[tuple[str, str], ...]

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(new for _, new in self.pairs)

    def row(self, source: dict[str, str]) -> dict[str, str]:
        return SourcedRow({new: source[old] for old, new in self.pairs}, source)


WHOLE = Projection()


def projection_of(
    columns: Sequence[str] | None,
    rename: Mapping[str, str] | None,
    required: Sequence[str] | None,
    *,
    where: str,
) -> Projection:
    """From what an author gave; raises PlayDefinitionError that says what is wrong with it."""
    if columns is None and rename is None and required is None:
        return WHOLE
    if rename is not None and not isinstance(rename, Mapping):
        raise PlayDefinitionError(
            f"{where}: rename is a dict of old names to new ones, not {type(rename).__name__}"
        )
    pairs = tuple((rename or {}).items())
    made = Projection(
        columns=_names(columns, f"{where}: columns"),
        rename=pairs,
        required=_names(required, f"{where}: required"),
    )
    for name in (name for pair in pairs for name in pair):
        _check_name(name, f"{where}: rename")
    return made


def _names(names: Sequence[str] | None, where: str) -> tuple[str, ...]:
    if names is None:
        return ()
    if isinstance(names, (str, bytes)) or not isinstance(names, (list, tuple)) or not names:
        raise PlayDefinitionError(f'{where} is a list of column names such as ["name"], not {names!r:.80}')
    for name in names:
        _check_name(name, where)
    if len(set(names)) < len(names):
        raise PlayDefinitionError(f"{where} names a column twice: {names!r:.200}")
    return tuple(names)


def _check_name(name: object, where: str) -> None:
    if not isinstance(name, str) or not name.strip():
        raise PlayDefinitionError(f"{where} holds {name!r:.80}: a column is named by non-empty text")


def _missing(file: str, name: str, known: tuple[str, ...], option: str) -> CsvError:
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    return CsvError(
        f'{file}, line 1: there is no column "{name:.80}", which {option} names; it has: {shown}; no tool was called'
    )
