"""What a body returns: always one object, and a CSV in it becomes a sheet first."""

import hashlib
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol

from runtime.context.csv_rows import CsvHandle
from runtime.context.dataset import DatasetSpec
from runtime.context.dataset_handle import DatasetHandle
from runtime.context.query_rows import QueryRows
from runtime.context.tool_result import ToolResult
from runtime.model.canonical_json import digest
from runtime.policy.rows_input import KeySpec

_METADATA = "_metadata"


class RunsDatasets(Protocol):
    async def run_dataset(self, spec: DatasetSpec) -> DatasetHandle: ...


async def returned(ctx: RunsDatasets, work: Awaitable[Any]) -> dict[str, Any]:
    """The result of a body's coroutine; runs as part of the body."""
    result = normalised(await work)
    sheets: dict[str, DatasetHandle] = {}
    for name, value in result.items():
        if isinstance(value, CsvHandle):
            key = _sheet_key(value)
            if key not in sheets:
                sheets[key] = await ctx.run_dataset(_sheet(key, value))
            result[name] = sheets[key]
    return result


def normalised(value: Any) -> dict[str, Any]:
    """Nothing: an empty object; rows (a list, dataset, query, CSV): under `rows`; a single value: under `value`."""
    if value is None:
        return {}
    if isinstance(value, ToolResult):
        value = value.data
    if isinstance(value, (list, tuple, DatasetHandle, CsvHandle, QueryRows)):
        return {"rows": value}
    if not isinstance(value, Mapping):
        return {"value": value}
    return {("metadata" if name == _METADATA else name): item for name, item in value.items()}


def _sheet_key(handle: CsvHandle) -> str:
    read_as = handle.read_as()
    named = hashlib.sha256(handle.path.encode("utf-8", "surrogatepass")).hexdigest()[:12]
    return f"csv_{named}_{digest(read_as)[:12]}" if read_as else f"csv_{named}"


def _sheet(key: str, handle: CsvHandle) -> DatasetSpec:
    """A dataset without a column: its rows are stored as they are."""
    return DatasetSpec(
        key=key, namespace=key, columns=(), rows=handle, row_key=KeySpec(), on_row_error="isolate"
    )
