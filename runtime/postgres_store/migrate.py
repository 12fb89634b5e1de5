"""Bring a database to the newest schema, while workers of the old version go on.

Expand, then contract: a release only adds (tables, columns with a default or null, indexes), so that statements of the
version before it still work; what nobody uses any more goes in a later release, once no worker of the old one is left.
Each migration is a transaction of its own. It waits for a table's lock for `migrate_lock_s` only, for whoever comes
later waits behind it; then it makes room and tries again. An index of an old table is built concurrently, in an
autocommit block at the migration's end, and what an interrupted try left of it is dropped first.
"""

import time
from pathlib import Path

import structlog
from alembic import command
from alembic.config import Config
from alembic.script import ScriptDirectory
from psycopg import errors as postgres_errors
from sqlalchemy import Connection, Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from runtime.errors import ServiceUnreachableError
from runtime.policy.identity import advisory_key
from runtime.policy.limits import DEFAULT_LIMITS, Limits

MIGRATIONS = Path(__file__).parent / "migrations"
NEWEST = "head"
_IN_THE_WAY = (postgres_errors.LockNotAvailable, postgres_errors.DeadlockDetected)
log = structlog.get_logger()


def upgrade(database_url: str, *, to: str = NEWEST, limits: Limits = DEFAULT_LIMITS) -> None:
    """Run all missing migrations; several callers at once take turns. Raises ServiceUnreachableError."""
    try:
        with engine_for(database_url).connect() as connection:
            _take_turn(connection, limits)
            _say(
                connection,
                "select set_config('lock_timeout', :wait, false)",
                wait=f"{limits.migrate_lock_s * 1000:.0f}ms",
            )
            _run(connection, to, limits)
    except OperationalError as error:
        raise ServiceUnreachableError(f"Postgres did not let the migrations run: {error.orig}") from error


def newest() -> str:
    """The revision that this code wants."""
    return ScriptDirectory.from_config(_config()).get_current_head() or ""


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    return config


def _run(connection: Connection, to: str, limits: Limits) -> None:
    config = _config()
    config.attributes["connection"] = connection
    for tries_left in reversed(range(limits.migrate_attempts)):
        try:
            command.upgrade(config, to)
        except OperationalError as error:
            if not (tries_left and isinstance(error.orig, _IN_THE_WAY)):
                raise
            log.info("migration makes room for statements", action="migrate.wait", tries_left=tries_left)
            connection.rollback()
            time.sleep(limits.migrate_pause_s)
        else:
            return


def _take_turn(connection: Connection, limits: Limits) -> None:
    """Of the session: it outlives each migration's transaction, and ends with the connection."""
    deadline = time.monotonic() + limits.migrate_turn_s
    # Whoever slept in a statement would be waited for by an index that is built beside its table's writers.
    while not _asked(connection, "select pg_try_advisory_lock(:key)", key=advisory_key("migrate")):
        if time.monotonic() > deadline:
            raise ServiceUnreachableError(
                f"another process has migrated this database for {limits.migrate_turn_s:g} s: look what it waits for "
                "(pg_stat_activity), then migrate again"
            )
        time.sleep(limits.migrate_pause_s)


def _asked(connection: Connection, statement: str, **values: object) -> object:
    found = connection.execute(text(statement), values).scalar_one()
    connection.commit()
    return found


def _say(connection: Connection, statement: str, **values: object) -> None:
    connection.execute(text(statement), values)
    connection.commit()


def engine_for(database_url: str) -> Engine:
    """A SQLAlchemy engine without a pool on psycopg 3."""
    return create_engine(make_url(database_url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
