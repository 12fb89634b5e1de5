"""One contract, two worlds."""

from collections.abc import AsyncIterator, Iterator
from urllib.parse import urlsplit, urlunsplit

import pytest

from runtime.postgres_store.pool import Pool, open_pool
from runtime.postgres_store.schema import metadata
from tests.conftest import Template
from tests.contract.memory_world import memory_world
from tests.contract.postgres_world import postgres_world
from tests.contract.stores_world import LIMITS, StoresWorld


@pytest.fixture(scope="session")
def contract_database(database_template: Template) -> Iterator[str]:
    """One database for all contract tests; each begins by emptying it."""
    name = "test_contract"
    database_template.run(f"create database {name} template {database_template.name}")
    try:
        yield urlunsplit(urlsplit(database_template.admin_url)._replace(path=f"/{name}"))
    finally:
        database_template.run(f"drop database {name} with (force)")


@pytest.fixture(params=["memory", pytest.param("postgres", marks=pytest.mark.servers)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[StoresWorld]:
    if request.param == "memory":
        yield memory_world()
        return
    database_url: str = request.getfixturevalue("contract_database")
    pool = open_pool(database_url, LIMITS)
    await pool.open()
    try:
        await empty(pool)
        yield postgres_world(pool)
    finally:
        await pool.close()


async def empty(pool: Pool) -> None:
    async with pool.connection() as connection, connection.pipeline():
        for table in metadata.tables:
            await connection.execute(f"delete from {table}".encode())
