"""The servers and the reference API that all contenders of a benchmark share, private to it."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from workers.stack.folders import temporary_state
from workers.stack.servers import Servers, running_servers
from workers.stack.sockets import answers_ok, free_port
from workers.stack.stack import API, stack_env
from workers.stack.supervisor import Supervisor

LOGS = Path(".playlane/logs/bench")
DURABLE = "fsync on, synchronous_commit on"
FAST = "fsync off, synchronous_commit off"


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """`folder` is gone afterwards, `logs` stay; `env` is what every child process is told."""

    servers: Servers
    api_url: str
    folder: Path
    logs: Path
    env: dict[str, str]
    notes: tuple[str, ...]


@contextmanager
def bench_world(*, latency_ms: float, durable: bool) -> Iterator[World]:
    """Fresh servers and API; all stopped and removed on leaving.

    Servers named in the environment are not used: their other users would be in the numbers.
    """
    notes = shared_notes(latency_ms, durable)
    logs = LOGS.resolve()
    with (
        _sigterm_cleans_up(),
        temporary_state() as folder,
        Supervisor() as supervisor,
        running_servers(folder, fast=not durable, supervisor=supervisor, environ={}) as servers,
    ):
        api_url = _start_api(supervisor, latency_ms, logs / "api.log")
        yield World(
            servers=servers,
            api_url=api_url,
            folder=folder,
            logs=logs,
            env={**stack_env(os.environ, servers, api_url), "PLAYLANE_WORKSPACE": str(folder)},
            notes=(*notes, *servers.notes),
        )


@contextmanager
def _sigterm_cleans_up() -> Iterator[None]:
    """SIGTERM unwinds as Ctrl-C does, so that servers stop and folders go."""
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def shared_notes(latency_ms: float, durable: bool) -> tuple[str, ...]:
    """What all contenders have in common, and how busy the machine was before."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return (
        f"{cores} cores (load before: {os.getloadavg()[0]:.1f}), provider latency {latency_ms:g} ms",
        f"Postgres {DURABLE if durable else FAST}; one set of servers for all, one contender at a time",
    )


def _start_api(supervisor: Supervisor, latency_ms: float, log: Path) -> str:
    port = free_port()
    supervisor.spawn(
        "api",
        [*API, "--port", str(port), "--latency-ms", str(latency_ms)],
        quiet=True,
        log=log,
        ready=lambda: answers_ok(port, "/healthz"),
    )
    return f"http://127.0.0.1:{port}"
