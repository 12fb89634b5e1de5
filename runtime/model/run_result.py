"""What a stored result says about rows. Pure."""

from collections.abc import Mapping
from typing import Any

DATASET = "dataset"
QUERY = "query"
_HELD = ("rows", "results", "leads", "contacts")
_LISTED = ("leads", "contacts", "rows", "results")


def is_dataset(value: Any) -> bool:
    """Whether a part of a result stands for a dataset, or for the rows of a query."""
    kind = value.get("kind") if isinstance(value, Mapping) else None
    return kind in (DATASET, QUERY) and str(kind) in value


def row_count(result: Any) -> int:
    """How many rows a result stands for: those of its dataset or query, else of its list, else one."""
    if not isinstance(result, Mapping) or not result:
        return 0
    for name in _HELD:
        if is_dataset(result.get(name)):
            return int(result[name].get("count", 0))
    for name in _LISTED:
        if isinstance(result.get(name), list):
            return len(result[name])
    return 1
