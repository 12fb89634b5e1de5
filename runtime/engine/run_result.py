"""What a body returned, as the JSON that its run keeps."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset_handle import DatasetHandle
from runtime.context.query_rows import QueryRows
from runtime.errors import JsonValueError
from runtime.model import json_value
from runtime.model.kept_value import KeptValue
from runtime.model.run_result import DATASET, QUERY
from runtime.policy.limits import Limits

Previews = Mapping[int, list[Any]]
"""Dataset id -> its first rows."""

_Made = dict[int, tuple[Any, Any]]
"""What became of each container, for it may stand in several places; the container is held, or its id says nothing."""


def result_json(value: Any, limits: Limits, previews: Previews | None = None) -> bytes:
    """Checked JSON text of a result; handles become objects. Raises JsonValueError with the path."""
    try:
        plain = _plain(value, "$", limits.value_depth, previews or {}, {})
    except RecursionError:
        raise JsonValueError("$", "nested too deeply") from None
    text = json_value.dumps(json_value.check(plain, path="$", max_depth=limits.value_depth))
    if len(text) > limits.result_bytes:
        path, size = json_value.heaviest(plain, "$")
        raise JsonValueError(
            path,
            f"{size:,} of the {len(text):,} bytes that the play returned; a result holds at most "
            f"{limits.result_bytes:,} bytes: return the dataset's handle, its rows are in the sheet",
        )
    return text


def handles_in(value: Any, limits: Limits) -> list[DatasetHandle]:
    """The datasets that a result names, as far as they are shown with rows."""
    return list(islice(_handles(value), limits.previews))


def preview(texts: list[str], limits: Limits) -> list[Any]:
    """As many of the rows (JSON text) as a preview holds."""
    shown: list[Any] = []
    size = 0
    for text in texts[: limits.preview_rows]:
        size += len(text)
        if size > limits.preview_bytes:
            break
        shown.append(json_value.loads(text.encode()))
    return shown


def _handles(value: Any) -> Iterator[DatasetHandle]:
    """In their order. A value that holds itself is refused later, by who checks it."""
    left, seen = [value], set[int]()
    while left:
        one = left.pop()
        if isinstance(one, DatasetHandle):
            yield one
        elif (
            isinstance(one, (Mapping, list, tuple)) and not isinstance(one, KeptValue) and id(one) not in seen
        ):
            seen.add(id(one))
            left.extend(reversed(list(one.values() if isinstance(one, Mapping) else one)))


def _plain(value: Any, path: str, depth: int, previews: Previews, made_of: _Made) -> Any:
    """One frame a level: 500 must fit."""
    if depth < 0:
        raise JsonValueError(path, "nested too deeply")
    if isinstance(value, DatasetHandle):
        first = None if value.dataset_id is None else previews.get(value.dataset_id)
        shown = {} if first is None else {"preview": first}
        return {"kind": DATASET, **value.to_json(), "count": value.count, **shown}
    if isinstance(value, QueryRows):
        described = value.query.described()
        return {"kind": QUERY, **described, "count": value.count, "preview": value.preview()}
    if isinstance(value, (KeptValue, CsvHandle)):
        return value.to_json()
    if not isinstance(value, (Mapping, list, tuple)):
        return value
    if id(value) in made_of:
        return made_of[id(value)][1]
    is_map = isinstance(value, Mapping)
    made: dict[Any, Any] = {}
    for name, item in value.items() if is_map else enumerate(value):
        at = f"{path}.{name}" if is_map else f"{path}[{name}]"
        made[name] = _plain(item, at, depth - 1, previews, made_of)
    plain = made if is_map else list(made.values())
    made_of[id(value)] = (value, plain)
    return plain
