"""A query whose result has more rows than one answer: its first rows, then any page of it."""

from typing import Any

from examples.execution_api.item_error import ItemError

FIRST_ROWS = 25
MOST_ROWS = 100_000


def numbers(input: dict[str, Any]) -> dict[str, Any]:
    """`{"count": n}` -> rows `{"n": 0}` to `{"n": n - 1}`; `page` is what the request's metadata asks for."""
    count, page = input.get("count"), input.get("page")
    if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_ROWS:
        raise ItemError("bad_count", f"count must be a whole number from 0 to {MOST_ROWS}")
    first, size = (page["offset"], page["page_size"]) if isinstance(page, dict) else (0, FIRST_ROWS)
    rows = [{"n": n} for n in range(first, min(first + size, count))]
    return {"rows": rows, "dataset": {"total_rows": count, "returned_limit": count}}
