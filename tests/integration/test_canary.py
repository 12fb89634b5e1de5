"""The API's token travels in the request and stays nowhere: not in stores, messages, logs, errors or command lines."""

import base64
import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from io import StringIO
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psycopg
import pytest
import redis
from celery import Celery

from runtime.client import PlayClient
from runtime.model.run import RunState
from workers.stack.console import Console
from workers.stack.folders import temporary_state
from workers.stack.servers import Servers, running_servers
from workers.stack.stack import start_stack
from workers.stack.supervisor import Supervisor

CANARY = "canary-7f3a-b20-c4n4ry"
OF_THE_API = "canary-7f3a/of+the api"
OF_THE_WORKERS = "canary-7f3a-of-the-workers"


def spellings(secret: str) -> list[bytes]:
    """As it is, in a URL, as hex, and inside base64 at any offset."""
    raw = secret.encode()
    inside = [base64.b64encode(b"x" * offset + raw)[4 : len(raw) // 3 * 4 - 4] for offset in range(3)]
    return [raw, quote(secret, safe="").encode(), raw.hex().encode(), *inside]


class Wire:
    """Everything that is said to Redis while it listens, in all databases, and every Celery event."""

    def __init__(self, redis_url: str) -> None:
        self.said: list[bytes] = []
        self.events: list[str] = []
        self._redis_url = redis_url
        self._over = threading.Event()
        self._listening = threading.Barrier(3)
        self._threads = [threading.Thread(target=work) for work in (self._monitor, self._capture)]
        for thread in self._threads:
            thread.start()
        self._listening.wait(10)

    def close(self) -> None:
        """Stop; must come before the server does."""
        self._over.set()
        with redis.Redis.from_url(self._redis_url) as client:
            client.ping()  # the last command that the monitor hears
        for thread in self._threads:
            thread.join(10)

    def _monitor(self) -> None:
        with redis.Redis.from_url(self._redis_url) as client, client.monitor() as monitor:
            self._listening.wait(10)
            for command in monitor.listen():
                self.said.append(repr(command).encode())
                if self._over.is_set():
                    return

    def _capture(self) -> None:
        app = Celery(broker=self._redis_url, set_as_current=False)
        with app.connection_for_read() as connection:
            keep = {"*": lambda event: self.events.append(str(event))}
            receiver = app.events.Receiver(connection, handlers=keep)
            self._listening.wait(10)
            while not self._over.is_set():
                with suppress(TimeoutError):
                    receiver.capture(limit=None, timeout=0.2, wakeup=False)


def all_values(redis_url: str) -> Iterator[tuple[str, bytes]]:
    """Every value of every database of a Redis, by key."""
    server = redis_url.rpartition("/")[0]
    readers: dict[Any, Any] = {
        b"string": lambda client, key: client.get(key),
        b"list": lambda client, key: client.lrange(key, 0, -1),
        b"hash": lambda client, key: client.hgetall(key),
        b"set": lambda client, key: client.smembers(key),
        b"stream": lambda client, key: client.xrange(key),
        b"zset": lambda client, key: client.zrange(key, 0, -1),
    }
    with redis.Redis.from_url(redis_url) as admin:
        used = [int(name[2:]) for name in admin.info("keyspace")]  # pyright: ignore[reportGeneralTypeIssues]
    for database in used:
        with redis.Redis.from_url(f"{server}/{database}") as client:
            for key in client.scan_iter():
                yield key.decode(), key + repr(readers[client.type(key)](client, key)).encode()


def all_rows(database_url: str) -> Iterator[tuple[str, bytes]]:
    """Every row of every table as text, bytes decoded where they are text."""
    with psycopg.connect(database_url) as connection:
        tables = connection.execute(
            "select table_name from information_schema.tables where table_schema = 'public'"
        ).fetchall()
        for (table,) in tables:
            for row in connection.execute(f"select * from {table}".encode()):
                yield table, repr(row).encode()


def command_lines() -> Iterator[tuple[str, bytes]]:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            yield f"process {process.name}", (process / "cmdline").read_bytes()
        except OSError:
            continue


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("logs")


@pytest.fixture(scope="module")
def run(logs: Path) -> Iterator[tuple[Servers, Wire, str]]:
    """One run of the whole stack at debug level under the canary as token; its servers still answer."""
    secret = {
        "PLAYLANE_EXECUTION_API_TOKEN": CANARY,
        "EXECUTION_API_TOKEN": CANARY,
        "EXECUTION_API_SECRETS": json.dumps({"OF_THE_API": OF_THE_API}),
        "PLAYLANE_SECRET_OF_THE_WORKERS": OF_THE_WORKERS,
        "PLAYLANE_EGRESS_ALLOW": "127.0.0.1",
    }
    settings = {
        "PLAYLANE_PLAY_MODULES": "tests.integration.canary_plays",
        "PLAYLANE_LOG_LEVEL": "DEBUG",
        "PLAYLANE_LIMITS": '{"suspend_grace_s": 0.1, "slice_rows": 2, "slices_per_page": 1}',
    }
    with ExitStack() as cleanup:
        state = cleanup.enter_context(temporary_state())
        supervisor = cleanup.enter_context(Supervisor(Console(StringIO())))
        servers = cleanup.enter_context(running_servers(state, fast=True, supervisor=supervisor, environ={}))
        with closing(Wire(servers.redis_url)) as wire:
            ports = start_stack(
                supervisor, servers, flower=False, quiet=True, logs=logs, env=secret | settings
            )
            assert ports.api_url is not None
            misbehave(ports.api_url)
            with PlayClient(redis_url=servers.redis_url, database_url=servers.database_url) as client:
                ended = client.wait(client.enqueue("canary", {"api": ports.api_url}), timeout_s=30)
                assert ended.state is RunState.COMPLETED, ended
                said = repr(ended) + repr([client.failures(one.dataset_id) for one in ended.datasets])
        yield servers, wire, said


def misbehave(api_url: str) -> None:
    """A reply without an end for the fenced tool; what asks without the token is refused."""
    how = {"cut": {"after_bytes": 9}, "operations": ["echo_fenced"], "attest_fence": False}
    assert httpx.post(f"{api_url}/_control", json=how).status_code == 200
    refused = httpx.post(f"{api_url}/api/v2/integrations/echo_single/execute", json={"payload": {}})
    assert refused.status_code == 401


def test_the_token_is_found_nowhere(run: tuple[Servers, Wire, str], logs: Path) -> None:
    servers, wire, said = run
    places = [
        *command_lines(),
        *all_values(servers.redis_url),
        *all_rows(servers.database_url),
        *((path.name, path.read_bytes()) for path in logs.rglob("*") if path.is_file()),
        *(("a command to Redis", command) for command in list(wire.said)),
        *(("an event", event.encode()) for event in list(wire.events)),
        ("what the client says of the run", said.encode()),
    ]
    names = {name for name, _ in places}
    assert {"receipts", "run_rows", "sheet_rows", "rows.log", "lanes.log", "an event"} <= names
    assert any(b"body_cut" in text for name, text in places if name == "receipts")
    assert any(b"ExecutionApiClient(" in text for name, text in places if name == "run_rows"), (
        "it was in reach"
    )
    assert any(b"debug" in text.lower() for name, text in places if name == "lanes.log")
    assert any(b"[secret OF_THE_API]" in text for name, text in places if name == "run_logs")
    assert any(b"authorization" in text and b"[secret OF_THE_WORKERS]" in text for _, text in places), (
        "it went out"
    )
    assert any(b"fetch_timeout" in text for name, text in places if name == "run_rows")
    assert any(b"secret_taint" in text for name, text in places if name == "run_rows")
    assert any(b"refused: " in text and b"not public" in text for name, text in places if name == "run_logs")
    for secret in (CANARY, OF_THE_API, OF_THE_WORKERS):
        found = [name for name, text in places if any(spelling in text for spelling in spellings(secret))]
        assert not found


def test_the_search_finds_what_is_there() -> None:
    for secret in (CANARY.encode(), b"x" + CANARY.encode(), b"xy" + CANARY.encode() + b"z"):
        for written in (secret, secret.hex().encode(), base64.b64encode(secret)):
            assert any(spelling in written for spelling in spellings(CANARY))


def test_the_servers_passwords_stay_out_of_logs_and_command_lines(
    run: tuple[Servers, Wire, str], logs: Path
) -> None:
    servers, _, _ = run
    passwords = [url.partition("://")[2].partition("@")[0].rpartition(":")[2] for url in vars_of(servers)]
    texts = [*command_lines(), *((path.name, path.read_bytes()) for path in logs.rglob("*.log"))]
    for password in filter(None, passwords):
        assert not [name for name, text in texts if password.encode() in text and name != str(os.getpid())]


def vars_of(servers: Servers) -> tuple[str, str]:
    return servers.database_url, servers.redis_url
