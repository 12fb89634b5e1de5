"""Real servers for the tests that ask: started once per session, a clean database and Redis for each test."""

import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest
import redis

from runtime.errors import ServersMissingError
from workers.stack.folders import temporary_state
from workers.stack.servers import REDIS_VARIABLE, Servers, running_servers


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if isinstance(item, pytest.Function) and "servers" in item.fixturenames:
            item.add_marker("servers")


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """PostgreSQL and Redis for this session. Without binaries: skipped on a desk, an error in CI."""
    with temporary_state() as state:
        running = running_servers(state, fast=True)
        try:
            started = running.__enter__()
        except ServersMissingError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(str(error))
        try:
            yield started
        finally:
            running.__exit__(None, None, None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A migrated database that others are cloned from."""

    admin_url: str
    name: str

    def run(self, statement: str) -> None:
        with psycopg.connect(self.admin_url, autocommit=True) as connection:
            connection.execute(statement.encode())


@pytest.fixture(scope="session")
def database_template(servers: Servers) -> Iterator[Template]:
    from runtime.postgres_store import migrate

    template = Template(admin_url=servers.database_url, name=f"test_template_{secrets.token_hex(4)}")
    template.run(f"create database {template.name}")
    try:
        migrate.upgrade(_in_path(servers.database_url, template.name))
        yield template
    finally:
        template.run(f"drop database {template.name} with (force)")


@pytest.fixture
def database_url(database_template: Template) -> Iterator[str]:
    """A fresh, migrated database, dropped afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    database_template.run(f"create database {name} template {database_template.name}")
    try:
        yield _in_path(database_template.admin_url, name)
    finally:
        database_template.run(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def redis_numbers() -> Iterator[int]:
    return count()


@pytest.fixture
def redis_url(servers: Servers, redis_numbers: Iterator[int]) -> Iterator[str]:
    """A Redis database of its own, emptied afterwards. One that holds somebody's data is never taken."""
    with redis.Redis.from_url(servers.redis_url) as admin:
        databases = int(str(admin.config_get("databases")["databases"]))  # pyright: ignore[reportIndexIssue]
    for _ in range(databases):
        url = _in_path(servers.redis_url, str(1 + next(redis_numbers) % (databases - 1)))
        with redis.Redis.from_url(url) as client:
            if client.dbsize() == 0:
                yield url
                client.flushdb()
                return
    pytest.fail(f"no empty Redis database among {databases}: empty one, or unset {REDIS_VARIABLE}")


def _in_path(url: str, path: str) -> str:
    return urlunsplit(urlsplit(url)._replace(path=f"/{path}"))
