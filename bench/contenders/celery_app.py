"""The Celery application of the peer: what a user writes after reading Celery's tutorial, and no worse."""

import os
from dataclasses import dataclass
from functools import cache
from threading import Lock

import httpx
import orjson
from celery import Celery
from psycopg.types.json import Jsonb
from psycopg_pool import ConnectionPool

from runtime.execution_api import wire

BROKER_VARIABLE = "BENCH_BROKER_URL"
DATABASE_VARIABLE = "BENCH_DATABASE_URL"
API_VARIABLE = "BENCH_API_URL"
CONNECTIONS_VARIABLE = "BENCH_CONNECTIONS"
TASK = "bench.call_row"
TIMEOUT_S = 30.0

WRITE = """
insert into bench_rows (org_id, namespace, row_key, data, cell_meta, run_id)
values ('bench', 'celery', %s, %s, %s, %s)
on conflict (org_id, namespace, row_key) do update
set data = excluded.data, cell_meta = excluded.cell_meta, run_id = excluded.run_id, updated_at = now()
"""
CELL_META = {"value": {"state": "completed"}}

app = Celery("bench_rows", broker=os.environ.get(BROKER_VARIABLE))
app.conf.update(
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    worker_send_task_events=True,  # watched in Flower, as its rival is
)


@dataclass(frozen=True, slots=True)
class Clients:
    http: httpx.Client
    pool: ConnectionPool


@app.task(name=TASK)
def call_row(run_id: str, item: str) -> None:
    """One row: one call, one upsert."""
    clients = _clients()
    reply = clients.http.post(
        wire.execute_path("echo"),
        content=orjson.dumps({"payload": {"item": item}, "metadata": {"parent_run_id": run_id}}),
        headers={
            wire.AUTHORIZATION: "Bearer bench",
            wire.IDEMPOTENCY_KEY: item,
            wire.RESPONSE_CONTRACT: wire.RAW_V2,
            "content-type": "application/json",
        },
    )
    result = orjson.loads(reply.raise_for_status().content)["toolResponse"]["rawV2"]["data"]
    with clients.pool.connection() as connection:
        data = {"item": item, "value": result["value"]}
        connection.execute(WRITE, (item, Jsonb(data), Jsonb(CELL_META), run_id))


_making = Lock()


def _clients() -> Clients:
    """One set a process, made by the first task in it, so that prefork works too."""
    with _making:
        return _make_clients()


@cache
def _make_clients() -> Clients:
    size = int(os.environ[CONNECTIONS_VARIABLE])
    return Clients(
        http=httpx.Client(
            base_url=os.environ[API_VARIABLE],
            limits=httpx.Limits(max_connections=size, max_keepalive_connections=size),
            timeout=TIMEOUT_S,
            trust_env=False,
        ),
        pool=ConnectionPool(
            os.environ[DATABASE_VARIABLE],
            kwargs={"autocommit": True},
            min_size=size,
            max_size=size,
            open=True,
        ),
    )
