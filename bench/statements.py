"""What the statements of one page cost, measured on a finished run: each page is put back out and rolled back."""

import time
from collections.abc import Sequence
from statistics import median
from typing import Any

import psycopg

from runtime.postgres_store.named import load

PAGES_COMPARED = 20
_SETTLING, _SLICES = load("settling"), load("slices")
_PUT_BACK = (
    b"update runs set state = 'running' where run_id = %(run_id)s",
    b"update datasets set state = 'running' where dataset_id = %(dataset_id)s",
    b"update pages set state = 'out' where dataset_id = %(dataset_id)s and page = %(page)s",
    b"update slices set state = 'open', sent_at = null where dataset_id = %(dataset_id)s and page = %(page)s",
)
_COUNTED = (
    _SETTLING["state"],
    _SETTLING["due_slices"],
    _SLICES["open_rows"],
    _SETTLING["close_slices"],
    _SETTLING["settle_page"],
    _SETTLING["move_window"],
    _SETTLING["pace"],
    _SETTLING["end_dataset"],
)


def page_cost_ratio(database_url: str, run_id: str) -> float:
    """The cost of the last pages of a run's dataset against that of its first ones: medians of both."""
    with psycopg.connect(database_url) as connection:
        connection.execute("select set_config('jit', 'off', false)")
        found = connection.execute(
            "select dataset_id, pages_seeded from datasets where run_id = %s", (run_id,)
        ).fetchone()
        assert found is not None
        dataset_id, pages = found
        compared = min(PAGES_COMPARED, pages // 2)
        first, last = list(range(compared)), list(range(pages - compared, pages))
        values = {"run_id": run_id, "dataset_id": dataset_id}
        _costs(connection, values, [*first, *last])  # once to warm up
        return round(median(_costs(connection, values, last)) / median(_costs(connection, values, first)), 3)


def _costs(connection: psycopg.Connection, values: dict[str, Any], pages: Sequence[int]) -> list[float]:
    return [_cost(connection, values | {"page": page}) for page in pages]


def _cost(connection: psycopg.Connection, values: dict[str, Any]) -> float:
    values |= {
        "slice": 0,
        "claim": "",
        "epoch": "bench",
        "stale_s": 60.0,
        "window": 4,
        "read_bytes": 1_000_000,
    }
    try:
        for statement in _PUT_BACK:
            connection.execute(statement, values)
        began = time.perf_counter()
        for statement in _COUNTED:
            connection.execute(statement, values)
        return time.perf_counter() - began
    finally:
        connection.rollback()
