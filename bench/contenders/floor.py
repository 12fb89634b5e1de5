"""The floor: one asyncio process, written by hand, fast and without a single guarantee."""

import asyncio
import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx
import orjson
import psycopg

from bench.contenders.tables import make_tables
from bench.measuring import RunRows
from bench.workload import Workload, read_items
from bench.world import World
from runtime.execution_api import wire

ORG, TOOL, OPERATION = "bench", "echo", "echo_batch"
SETUP = "one asyncio process by hand: batches of 100, 8 in flight, bulk upserts, no guarantees"
BATCH_ROWS = 100
BATCHES_IN_FLIGHT = 8
WRITE_ROWS = 2_000
QUEUED_BATCHES = 64
TIMEOUT_S = 30.0

WRITE_SHEET = """
insert into bench_rows (org_id, namespace, row_key, data, cell_meta, run_id)
select %s, 'floor', t.row_key, t.data::jsonb, t.cell_meta::jsonb, %s
from unnest(%s::text[], %s::text[], %s::text[]) as t(row_key, data, cell_meta)
on conflict (org_id, namespace, row_key) do update
set data = excluded.data, cell_meta = excluded.cell_meta, run_id = excluded.run_id, updated_at = now()
"""
WRITE_RECEIPTS = """
insert into bench_receipts (key, org_id, tool, run_id, state, output)
select t.key, %s, %s, %s, 'completed', t.output from unnest(%s::text[], %s::bytea[]) as t(key, output)
on conflict (key) do update set state = excluded.state, output = excluded.output, updated_at = now()
"""
CELL_META = b'{"value":{"state":"completed"}}'.decode()


@dataclass(frozen=True, slots=True, kw_only=True)
class DoneRow:
    item: str
    key: str
    result: Any


@contextmanager
def ready(world: World) -> Iterator[RunRows]:
    """Tables made; every run has its own loop and clients."""
    make_tables(world.servers.database_url)

    def run_rows(workload: Workload) -> None:
        asyncio.run(_run(workload, world.api_url, world.servers.database_url))

    yield run_rows


async def _run(workload: Workload, api_url: str, database_url: str) -> None:
    batches = chunks(read_items(workload.file), BATCH_ROWS)
    done: asyncio.Queue[list[DoneRow] | None] = asyncio.Queue(QUEUED_BATCHES)
    limits = httpx.Limits(max_connections=BATCHES_IN_FLIGHT, max_keepalive_connections=BATCHES_IN_FLIGHT)
    async with (
        httpx.AsyncClient(base_url=api_url, limits=limits, timeout=TIMEOUT_S, trust_env=False) as http,
        await psycopg.AsyncConnection.connect(database_url, autocommit=True) as connection,
        asyncio.TaskGroup() as writing,
    ):
        writing.create_task(_write_all(connection, workload.tag, done))
        async with asyncio.TaskGroup() as calling:
            for _ in range(BATCHES_IN_FLIGHT):
                calling.create_task(_call_all(http, workload.tag, batches, done))
        await done.put(None)


def chunks(items: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    return (items[start : start + size] for start in range(0, len(items), size))


async def _call_all(
    http: httpx.AsyncClient,
    run_id: str,
    batches: Iterable[Sequence[str]],
    done: asyncio.Queue[list[DoneRow] | None],
) -> None:
    for batch in batches:
        await done.put(await _call(http, run_id, batch))


async def _call(http: httpx.AsyncClient, run_id: str, batch: Sequence[str]) -> list[DoneRow]:
    keys = [hashlib.sha256(f"{TOOL}:{item}".encode()).hexdigest() for item in batch]
    items = [{"key": str(n), "input": {"item": item}} for n, item in enumerate(batch)]
    body = {
        "payload": {"items": items},
        "metadata": {"parent_run_id": run_id, "member_run_ids": [run_id], "item_idempotency_keys": keys},
    }
    headers = {
        wire.AUTHORIZATION: "Bearer bench",
        wire.IDEMPOTENCY_KEY: hashlib.sha256("".join(keys).encode()).hexdigest(),
        wire.RESPONSE_CONTRACT: wire.RAW_V2,
        "content-type": "application/json",
    }
    reply = await http.post(wire.execute_path(OPERATION), content=orjson.dumps(body), headers=headers)
    answers = orjson.loads(reply.raise_for_status().content)["toolResponse"]["rawV2"]["data"]["items"]
    return [
        DoneRow(item=item, key=key, result=answer["result"])
        for item, key, answer in zip(batch, keys, answers, strict=True)
    ]


async def _write_all(
    connection: psycopg.AsyncConnection, run_id: str, done: asyncio.Queue[list[DoneRow] | None]
) -> None:
    ended = False
    while not ended:
        rows: list[DoneRow] = []
        batch = await done.get()
        while batch is not None:
            rows += batch
            if len(rows) >= WRITE_ROWS or done.empty():
                break
            batch = done.get_nowait()
        ended = batch is None
        if rows:
            await _write(connection, run_id, rows)


async def _write(connection: psycopg.AsyncConnection, run_id: str, rows: Sequence[DoneRow]) -> None:
    keys = [row.item for row in rows]
    data = [orjson.dumps({"item": row.item, "value": row.result["value"]}).decode() for row in rows]
    meta = list(itertools.repeat(CELL_META, len(rows)))
    outputs = [orjson.dumps(row.result) for row in rows]
    async with connection.pipeline(), connection.transaction():
        await connection.execute(WRITE_SHEET, (ORG, run_id, keys, data, meta))
        await connection.execute(WRITE_RECEIPTS, (ORG, TOOL, run_id, [row.key for row in rows], outputs))
