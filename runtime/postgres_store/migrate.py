"""Bring a database to the newest schema."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Engine, create_engine, text
from sqlalchemy.engine import make_url
from sqlalchemy.exc import OperationalError
from sqlalchemy.pool import NullPool

from runtime.errors import ServiceUnreachableError
from runtime.policy.identity import advisory_key

MIGRATIONS = Path(__file__).parent / "migrations"


def upgrade(database_url: str) -> None:
    """Run all missing migrations; several callers at once take turns."""
    engine = engine_for(database_url)
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    try:
        with engine.begin() as connection:
            connection.execute(text("select pg_advisory_xact_lock(:key)"), {"key": advisory_key("migrate")})
            config.attributes["connection"] = connection
            command.upgrade(config, "head")
    except OperationalError as error:
        raise ServiceUnreachableError(f"Postgres did not let the migrations run: {error.orig}") from error


def engine_for(database_url: str) -> Engine:
    """A SQLAlchemy engine without a pool on psycopg 3."""
    return create_engine(make_url(database_url).set(drivername="postgresql+psycopg"), poolclass=NullPool)
