"""The cost of a page doesn't grow with the pages before it: hot statements read a bounded number of blocks.

The planner's guess about position ranges once made `close_slices` read the whole of `run_rows` for every page.
"""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from runtime.postgres_store.named import load

PAGES, PAGE_ROWS, SLICE_ROWS = 400, 100, 20
LAST = PAGES - 1

FILL = f"""
insert into sessions (session_id, role, hostname, pid, ttl_s, expires_at)
values ('me', 'rows', 'h', 1, 30, now() + interval '1 h');
insert into runs (run_id, org_id, play, input, options, state) values ('r', 'o', 'p', '{{}}', '{{}}', 'waiting');
insert into datasets (run_id, key, namespace, state, columns, source_hash, on_row_error, op_key,
  pages_seeded, pages_total, next_page, pages_settled)
values ('r', 'd', 'd', 'running', '{{c}}', '', 'isolate', 'd', {PAGES}, {PAGES}, {PAGES}, {LAST});
insert into pages
select 1, n, case when n = {LAST} then 'out' else 'settled' end, n * {PAGE_ROWS}, (n + 1) * {PAGE_ROWS}
from generate_series(0, {LAST}) n;
insert into slices (dataset_id, page, slice, first_position, end_position, state, session_id, fence)
select 1, n / 5, n % 5, n * {SLICE_ROWS}, (n + 1) * {SLICE_ROWS}, case when n / 5 = {LAST} then 'open' else 'done' end,
  case when n / 5 = {LAST} and n % 5 > 0 then 'me' end, 1 from generate_series(0, {PAGES * 5 - 1}) n;
insert into run_rows (dataset_id, position, page, row_key, input, state)
select 1, n, n / {PAGE_ROWS}, 'k' || n, '{{}}', case when n / {PAGE_ROWS} = {LAST} then 'pending' else 'completed' end
from generate_series(0, {PAGES * PAGE_ROWS - 1}) n;
insert into row_waits select 1, n, 'lane', now() + interval '1 h', ''
from generate_series(0, {LAST * PAGE_ROWS + SLICE_ROWS - 1}) n;
insert into sessions (session_id, role, hostname, pid, ttl_s, expires_at, ended_at)
values ('dead', 'rows', 'h', 1, 30, now(), now());
update slices set session_id = 'dead' where page = {LAST} and slice = 0;
analyze;
"""

HELD = {
    "dataset_ids": [1] * 4,
    "pages": [LAST] * 4,
    "slices": [1, 2, 3, 4],
    "fences": [1] * 4,
    "session_id": "me",
    "row_slices": [1],
    "positions": [LAST * PAGE_ROWS + SLICE_ROWS],
    "states": ["completed"],
    "errors": [None],
    "kinds": ["lane"],
    "due_ms": [1.0],
    "details": [""],
}
PAGE = {
    "dataset_id": 1,
    "page": LAST,
    "epoch": "e",
    "stale_s": 30.0,
    "batch": 100,
    "window": 4,
    "slice_rows": SLICE_ROWS,
}
WAITS = {
    "dataset_id": 1,
    "positions": [LAST * PAGE_ROWS + n for n in range(SLICE_ROWS)],
    "pages": [LAST],
    "slices": [0],
    "kind": "lane",
    "batch": 100,
    "run_id": "r",
}
CLAIM = PAGE | {
    "run_id": "r",
    "slice": 0,
    "session_id": "me",
    "claim": "token",
    "read_bytes": 1_000_000,
    "positions": [LAST * PAGE_ROWS],
}
STATEMENTS: list[tuple[str, str, dict[str, Any]]] = [
    ("settling", "close_slices", PAGE),
    ("settling", "settle_page", PAGE),
    ("settling", "move_window", PAGE),
    ("settling", "cut_pages", PAGE),
    ("settling", "due_slices", PAGE),
    ("settling", "stale_pages", PAGE),
    ("settling", "stale_datasets", PAGE),
    ("slices", "take", CLAIM),
    ("settling", "state", PAGE),
    ("slices", "open_rows", CLAIM),
    ("slices", "read_rows", CLAIM),
    ("slices", "split", CLAIM | {"suspects_from": 1_000_000}),
    ("flush", "add_waits", HELD),
    ("flush", "woken_rows", HELD),
    ("flush", "drop_waits", HELD),
    ("winding", "drop_waits", {"dataset_id": 1, "pages": [LAST]}),
    ("waiting", "due", WAITS),
    ("waiting", "of_run", WAITS),
    ("waiting", "lock_slices", WAITS),
    ("waiting", "wake", WAITS),
    ("waiting", "lock_pages", WAITS),
    ("waiting", "unpark", WAITS),
    ("waiting", "park", WAITS),
    ("flush", "lock_slices", HELD),
    ("flush", "update_rows", HELD),
    ("flush", "cancel_open_rows", HELD),
    ("flush", "fail_datasets", HELD | {"failing": [1]}),
    ("flush", "finish_slices", HELD),
    ("winding", "close_slices", {"dataset_id": 1, "pages": [LAST]}),
    ("winding", "cancel_rows", {"dataset_id": 1, "pages": [LAST]}),
    ("winding", "settle_pages", {"dataset_id": 1, "pages": [LAST]}),
]
# A page's rows, their new versions and slices are some 300 blocks; all of run_rows is above 900.
MOST_BLOCKS = 450


@pytest.fixture(scope="module")
def filled(database_template: Any) -> Iterator[psycopg.Connection]:
    database_template.run(f"create database test_plans template {database_template.name}")
    url = database_template.admin_url.rsplit("/", 1)[0] + "/test_plans"
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(FILL.encode())
            size = connection.execute("select pg_relation_size('run_rows') / 8192").fetchone()
            assert size is not None
            assert size[0] > 2 * MOST_BLOCKS
            yield connection
    finally:
        database_template.run("drop database test_plans with (force)")


@pytest.mark.servers
@pytest.mark.parametrize("mode", ["force_custom_plan", "force_generic_plan"])
@pytest.mark.parametrize(
    ("file", "name", "values"), STATEMENTS, ids=[f"{file}.{name}" for file, name, _ in STATEMENTS]
)
def test_blocks_read_are_bounded(
    filled: psycopg.Connection, mode: str, file: str, name: str, values: dict[str, Any]
) -> None:
    with filled.transaction(force_rollback=True):
        filled.execute(f"set local plan_cache_mode = {mode}".encode())
        if file == "winding":
            filled.execute("update datasets set state = 'cancelled'")
        explained = filled.execute(
            b"explain (analyze, buffers, timing off, format json) " + load(file)[name], values, prepare=True
        )
        ((plan,),) = explained.fetchall()
    top = plan[0]["Plan"]
    assert top["Shared Hit Blocks"] + top["Shared Read Blocks"] <= MOST_BLOCKS, plan
