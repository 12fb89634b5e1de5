"""Input rows of a dataset as values: cleaned, keyed, digested. Pure."""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from runtime.errors import DatasetInputError, JsonValueError
from runtime.model import json_value
from runtime.model.canonical_json import canonical, digest
from runtime.model.error_text import named
from runtime.model.kept_value import plain

RESERVED_PREFIXES = ("__deepline", "__playlane")
KEY_CHARS = 200
_NAMES_SHOWN = 20

KeyFunction = Callable[[Mapping[str, Any]], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeySpec:
    """How a row gets its key: from input columns, from a function, or (neither) from its whole input."""

    columns: tuple[str, ...] = ()
    function: KeyFunction | None = None

    @property
    def explicit(self) -> bool:
        return bool(self.columns) or self.function is not None

    def described(self) -> list[str]:
        """The spec as far as it can be compared between replays."""
        return list(self.columns) if self.function is None else ["a function"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TakenRow:
    row_key: str
    input: bytes
    columns: tuple[str, ...] = ()


class SourcedRow(dict[str, Any]):
    """A row that was cut from another: that one identifies it, and an explicit key may name its columns too."""

    __slots__ = ("source",)

    def __init__(self, row: Mapping[str, Any], source: dict[str, Any]) -> None:
        super().__init__(row)
        self.source = source


def take_row(
    row: object, *, number: int, dataset: str, key: KeySpec, outputs: frozenset[str], max_bytes: int
) -> TakenRow:
    """Check, key and encode one input row; `number` counts from 1 and is named in every refusal."""
    cleaned = check_row(row, number=number, dataset=dataset, key=key, outputs=outputs)
    text = json_value.dumps(cleaned)
    if len(text) > max_bytes:
        path, part = json_value.heaviest(cleaned, "$")
        what = f"is {len(text):,} bytes long, {part:,} of them at {path}; at most {max_bytes:,} are taken"
        raise _refusal(dataset, number, what)
    row_key = key_of(cleaned, key=key, outputs=outputs, source=_source(row))
    return TakenRow(row_key=row_key, input=text, columns=tuple(cleaned))


def check_row(
    row: object, *, number: int, dataset: str, key: KeySpec, outputs: frozenset[str]
) -> dict[str, Any]:
    """The row cleaned; raises DatasetInputError naming its number if its values or its key can't be taken."""
    try:
        cleaned = _storable(clean(row))
        if key.explicit:
            key_of(cleaned, key=key, outputs=outputs, source=_source(row))
    except (JsonValueError, ValueError) as error:
        raise _refusal(dataset, number, str(error)) from error
    return cleaned


def _storable(row: dict[str, Any]) -> dict[str, Any]:
    """Most rows are plain: one walk. A tool result or dataset in a row goes in as its plain value."""
    try:
        return json_value.check(row)
    except JsonValueError:
        return json_value.check(plain(row)[0])


def clean(row: object) -> dict[str, Any]:
    """The row as a plain dict, without playlane's own fields."""
    if not isinstance(row, Mapping):
        raise JsonValueError("$", f"a row is a dict of column names to values, not {type(row).__name__}")
    return {
        name: value
        for name, value in row.items()
        if not (isinstance(name, str) and name.startswith(RESERVED_PREFIXES))
    }


def key_of(
    row: dict[str, Any], *, key: KeySpec, outputs: frozenset[str], source: dict[str, Any] | None = None
) -> str:
    """The row's key; raises ValueError if an explicit key has no usable value.

    An explicit key sees input columns only: a column that the dataset writes can't identify its row. `source`: the
    row that it was cut from.
    """
    if not key.explicit:
        return digest(row if source is None else source)
    whole = row if source is None else {**source, **row}
    visible = {name: value for name, value in whole.items() if name not in outputs}
    parts = [_part(value, name) for name, value in _key_values(key, visible, outputs)]
    if not parts:
        raise ValueError("has an empty key: name at least one column")
    text = parts[0] if len(parts) == 1 else orjson.dumps(parts).decode()
    return text if len(text) <= KEY_CHARS else digest(text)


def _key_values(key: KeySpec, row: dict[str, Any], outputs: frozenset[str]) -> list[tuple[str, Any]]:
    """(what it is, value) of each part of an explicit key."""
    if key.function is not None:
        found = _called(key.function, row)
        values = found if isinstance(found, (list, tuple)) else [found]
        return [("what its key function returned", value) for value in values]
    for name in key.columns:
        if name in outputs:
            raise ValueError(f'has no key: column "{name}" is made by the dataset; use a column of its input')
        if name not in row:
            known = ", ".join(list(row)[:_NAMES_SHOWN]) or "none"
            raise ValueError(f'has no key: it has no column "{name}" (it has: {known})')
    return [(f'column "{name}"', row[name]) for name in key.columns]


def chained(previous: bytes, row: bytes) -> bytes:
    """Digest of all input up to and including `row`, given the digest of all before it."""
    return hashlib.sha256(previous + row).digest()


def _called(function: KeyFunction, row: dict[str, Any]) -> Any:
    try:
        return function(row)
    except Exception as error:
        raise ValueError(f"has no key: its key function raised {named(error)}") from error


def _part(value: Any, what: str) -> str:
    if value is None:
        raise ValueError(f"has no key: {what} is null; use a column that every row fills")
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(
            f"has no key: {what} is of type {type(value).__name__}; only text and numbers identify a row"
        )
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"has no key: {what} is {value}, not a finite number")
    text = value.strip() if isinstance(value, str) else canonical(value).decode()  # 1.0 is 1
    if not text:
        raise ValueError(f"has an empty key: {what} is empty; use a column that every row fills")
    json_value.check(text, path="$.key")
    return text


def _source(row: object) -> dict[str, Any] | None:
    return clean(row.source) if isinstance(row, SourcedRow) else None


def _refusal(dataset: str, number: int, reason: str) -> DatasetInputError:
    return DatasetInputError(f'dataset "{dataset}": row {number} {reason}')
