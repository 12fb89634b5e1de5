"""Cells alive again: tool results and datasets from plain JSON and the marks in their cell meta."""

from collections.abc import Mapping
from typing import Any

from runtime.context.dataset_handle import DATASET_KIND, DatasetHandle
from runtime.context.fetching import FETCH_KIND, FetchResponse
from runtime.context.query_rows import QUERY_KIND, alive_query
from runtime.context.tool_result import KIND as TOOL_RESULT_KIND
from runtime.context.tool_result import result_of
from runtime.model.cell import KEPT
from runtime.model.kept_value import Marks, replaced, steps_of
from runtime.model.tool_output import Origin


def alive(value: Any, marks: Marks, *, origin: Origin | None = None) -> Any:
    """`value` with what its marks name alive; `origin` says how results come here, if not as they first did."""
    for pointer, mark in marks.items():
        value = replaced(value, steps_of(pointer), lambda found, mark=mark: _made(found, mark, origin))
    return value


def alive_row(data: Mapping[str, Any], cell_meta: Mapping[str, Any]) -> dict[str, Any]:
    """A row of a sheet as an author meets it in a later run."""
    return {
        name: alive(value, (cell_meta.get(name) or {}).get(KEPT, {}), origin=Origin.CACHE)
        for name, value in data.items()
    }


def _made(value: Any, mark: Mapping[str, Any], origin: Origin | None) -> Any:
    kind = mark.get("kind")
    if kind == TOOL_RESULT_KIND:
        return result_of(mark, value, origin)
    if kind == FETCH_KIND and isinstance(value, Mapping):
        return FetchResponse(value)
    if kind == DATASET_KIND and isinstance(value, Mapping):
        return DatasetHandle.of_json(value)
    if kind == QUERY_KIND:
        return alive_query(mark, value)
    return value
