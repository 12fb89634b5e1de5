"""What the stores do when Postgres cuts a connection, answers too late, or isn't there."""

from collections.abc import AsyncIterator
from dataclasses import replace

import psycopg
import pytest

from runtime.errors import ServiceUnreachableError
from runtime.model.run import NewRun
from runtime.postgres_store.pool import Database, Pool, database_errors, open_pool
from runtime.postgres_store.runs import PostgresRuns
from runtime.postgres_store.sessions import PostgresSessions, renew_sync
from tests.contract.postgres_world import postgres_world
from tests.contract.stores_world import LIMITS

FAST = replace(LIMITS, database_retry_s=0.01, database_timeout_s=2.0, database_pool=3)


@pytest.fixture
async def pool(database_url: str) -> AsyncIterator[Pool]:
    opened = open_pool(database_url, FAST)
    await opened.open()
    try:
        yield opened
    finally:
        await opened.close()


async def cut_all(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url, autocommit=True) as admin:
        await admin.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity"
            " where datname = current_database() and pid <> pg_backend_pid()"
        )


async def test_cut_connections_are_replaced_without_the_caller_noticing(
    pool: Pool, database_url: str
) -> None:
    world = postgres_world(pool)
    dataset_id = await world.seeded(2)
    await world.settling.claim_pages(dataset_id)
    await cut_all(database_url)
    taken = await world.taken(dataset_id, 0, 0)
    await cut_all(database_url)
    assert (await world.flush(taken)).done == {taken.id}
    await cut_all(database_url)
    assert (await world.runs.poll("r1", 1)).wakes == 0


async def test_a_claim_whose_answer_was_lost_finds_itself(pool: Pool, database_url: str) -> None:
    """The first try commits and loses its connection; the repeated one must not see a stranger."""
    sessions, runs = PostgresSessions(pool, FAST), PostgresRuns(pool, FAST)
    await sessions.open("s1", role="plays", hostname="h", pid=1, ttl_s=30)
    await runs.insert(NewRun(run_id="r1", org_id="o", play="p", input=None))
    losing = LosesAnswers(pool, 1)
    runs._database = losing  # pyright: ignore[reportPrivateUsage]
    claimed = await runs.claim("r1", "s1")
    assert losing.lost == 1
    assert claimed is not None
    assert claimed.attempt == 1


async def test_a_claim_that_was_never_answered_is_given_back(pool: Pool) -> None:
    sessions, runs = PostgresSessions(pool, FAST), PostgresRuns(pool, FAST)
    await sessions.open("s1", role="plays", hostname="h", pid=1, ttl_s=30)
    await runs.insert(NewRun(run_id="r1", org_id="o", play="p", input=None))
    runs._database = LosesAnswers(pool, FAST.database_attempts)  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ServiceUnreachableError):
        await runs.claim("r1", "s1")
    assert await PostgresRuns(pool, FAST).claim("r1", "s1") is None
    await runs.give_back_doubtful()
    claimed = await PostgresRuns(pool, FAST).claim("r1", "s1")
    assert claimed is not None
    assert claimed.attempt == 2


async def test_a_late_answer_is_named_and_not_repeated(pool: Pool) -> None:
    tries = 0

    async def slow(connection: psycopg.AsyncConnection) -> None:
        nonlocal tries
        tries += 1
        await connection.execute("set local statement_timeout = 0; set statement_timeout = 20")
        await connection.execute("select pg_sleep(5)")

    with pytest.raises(
        ServiceUnreachableError, match=r"Postgres failed at a slow thing: canceling statement"
    ):
        await Database(pool, FAST).run("a slow thing", slow)
    assert tries == 1


async def test_a_pool_without_a_free_connection_says_so(database_url: str) -> None:
    limits = replace(FAST, database_pool=1, database_timeout_s=0.05)
    async with open_pool(database_url, limits) as pool, pool.connection(timeout=20):
        with pytest.raises(ServiceUnreachableError, match=r"no Postgres connection for opening a session"):
            await PostgresSessions(pool, limits).open("s", role="x", hostname="h", pid=1, ttl_s=1)


async def test_a_frozen_transaction_keeps_nothing_for_ever(pool: Pool) -> None:
    async with pool.connection() as connection:
        cursor = await connection.execute("show idle_in_transaction_session_timeout")
        assert await cursor.fetchone() == ("2s",)


async def test_a_sweep_has_one_turn_in_the_fleet(pool: Pool) -> None:
    one, two = postgres_world(pool).settling, postgres_world(pool).settling
    async with one.sweep_turn("pages") as ours:
        assert ours
        async with two.sweep_turn("pages") as theirs:
            assert not theirs
        async with two.sweep_turn("runs") as theirs:
            assert theirs


async def test_a_plain_thread_renews_its_session(pool: Pool, database_url: str) -> None:
    sessions = PostgresSessions(pool, FAST)
    await sessions.open("s1", role="rows", hostname="h", pid=1, ttl_s=30)
    with psycopg.connect(database_url, autocommit=True) as connection:
        assert renew_sync(connection, "s1", 30)
        await sessions.close("s1")
        assert not renew_sync(connection, "s1", 30)
    with pytest.raises(ServiceUnreachableError):
        renew_sync(connection, "s1", 30)


def test_every_error_of_the_driver_has_a_name_of_ours() -> None:
    kinds = {psycopg.OperationalError, psycopg.InterfaceError, *psycopg.OperationalError.__subclasses__()}
    for kind in kinds:
        with pytest.raises(ServiceUnreachableError), database_errors("a test"):
            raise kind("gone")


class LosesAnswers(Database):
    """A database that commits and then loses the connection, the first few times."""

    def __init__(self, pool: Pool, times: int) -> None:
        super().__init__(pool, FAST)
        self.times = times
        self.lost = 0

    async def _once(self, work):
        answer = await super()._once(work)
        if self.lost < self.times:
            self.lost += 1
            raise psycopg.OperationalError("connection lost")
        return answer
