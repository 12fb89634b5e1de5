"""Work done here once: stored before it is served, shared under a lease, never cut, never lost to a short outage."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from runtime.engine.local_receipts import LocalReceipts
from runtime.errors import (
    LocalWaitExceededError,
    PersistenceLostError,
    RunHaltedError,
    ServiceUnreachableError,
)
from runtime.model.call import Accepts
from runtime.model.local_work import LocalKind, LocalWork, Made
from runtime.model.receipt import ReceiptState
from runtime.policy.limits import Limits
from runtime.testing_redis import MemoryRedis
from tests.local_world import Stored, local_receipts
from tests.waiting import wait_until_async as wait_until

LIMITS = Limits(
    poll_first_ms=5, poll_max_ms=10, local_poll_ms=2, lane_retry_ms=2, commit_retry_ms=40, lane_wait_ms=5,
    local_wait_ms=60, receipt_output_bytes=100, local_finish_s=1,
)  # fmt: skip
WORK = LocalWork(kind=LocalKind.STEP, id="x", key="k", org_id="o", run_id="r1")
SHARED = replace(WORK, shared=True, key="s")


class Fleet:
    """Processes over one store and one Redis."""

    def __init__(self, limits: Limits = LIMITS) -> None:
        self.stored = Stored()
        self.redis = MemoryRedis(limits)
        self.limits = limits

    async def process(self, session_id: str = "p1") -> LocalReceipts:
        return local_receipts(self.stored, self.redis, self.limits, session_id)


class Making:
    """Counts how often it was made; each time another value."""

    def __init__(
        self, *, fails: BaseException | None = None, output: bytes | None = None, **made: Any
    ) -> None:
        self.count = 0
        self.open = asyncio.Event()
        self.open.set()
        self.fails, self.output, self.made = fails, output, made

    async def __call__(self) -> Made:
        self.count += 1
        count = self.count
        await self.open.wait()
        if self.fails:
            raise self.fails
        return Made(output=self.output or b'{"n":%d}' % count, **self.made)


async def test_made_once_and_served_byte_for_byte_ever_after() -> None:
    fleet, make = Fleet(), Making(output=b'{"b": 1e16,"a":-0.0}')
    first = await (await fleet.process()).outcome(WORK, make)
    again = await (await fleet.process("p2")).outcome(WORK, make)
    assert (first.output, again.output, make.count) == (b'{"b": 1e16,"a":-0.0}', first.output, 1)
    assert (first.cached, again.cached) == (False, True)


async def test_all_asks_of_one_turn_are_one_query_and_few_commits() -> None:
    fleet = Fleet(replace(LIMITS, receipt_chunk=500))
    local = await fleet.process()
    works = [replace(WORK, key=f"k{n}") for n in range(1_200)]
    await asyncio.gather(*(local.outcome(work, Making()) for work in works))
    assert fleet.stored.reads == [500, 500, 200]
    assert len(fleet.stored.commits) <= 4 and sum(fleet.stored.commits) == 1_200


async def test_a_failure_answers_its_own_run_alone_and_any_later_result_replaces_it() -> None:
    fleet = Fleet()
    local = await fleet.process()
    bad = Making(fails=ValueError("boom"))
    first = await local.outcome(SHARED, bad)
    assert first.error is not None
    assert (first.error["type"], first.error["message"]) == (
        "ValueError",
        'ctx.step("x") failed: ValueError: boom',
    )
    assert (await local.outcome(SHARED, Making())).error == first.error
    other = await local.outcome(replace(SHARED, run_id="r2"), Making())
    assert other.output == b'{"n":1}'
    assert (await local.outcome(SHARED, Making())).output == other.output


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]
)
async def test_whatever_an_author_raises_is_an_outcome(error: BaseException) -> None:
    outcome = await (await Fleet().process()).outcome(WORK, Making(fails=error))
    assert outcome.error is not None and outcome.error["type"] == type(error).__name__


async def test_what_ends_a_run_is_no_outcome() -> None:
    fleet = Fleet()
    with pytest.raises(RunHaltedError):
        await (await fleet.process()).outcome(WORK, Making(fails=RunHaltedError("no credits")))
    assert not fleet.stored.by_key


async def test_an_output_too_large_is_final_and_says_so() -> None:
    fleet = Fleet()
    outcome = await (await fleet.process()).outcome(WORK, Making(output=b"1" * 101))
    assert outcome.terminal and outcome.error is not None
    assert "101 bytes" in outcome.error["message"]


async def test_a_cancelled_asker_never_cuts_the_work() -> None:
    fleet, make = Fleet(), Making()
    make.open.clear()
    local = await fleet.process()
    asker = asyncio.create_task(local.outcome(WORK, make))
    await wait_until(lambda: make.count)
    asker.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asker
    settling = asyncio.create_task(local.settled(["k"]))
    make.open.set()
    await settling
    assert (await local.outcome(WORK, Making())).output == b'{"n":1}'
    assert local.running() == 0


async def test_equal_shared_keys_are_made_by_one_process_while_the_others_wait() -> None:
    fleet, make = Fleet(), Making()
    make.open.clear()
    one, two = await fleet.process("p1"), await fleet.process("p2")
    asked = [asyncio.create_task(local.outcome(SHARED, make)) for local in (one, one, two)]
    await wait_until(lambda: make.count and len(fleet.stored.reads) > 3)
    make.open.set()
    outcomes = await asyncio.gather(*asked)
    assert make.count == 1 and {outcome.output for outcome in outcomes} == {b'{"n":1}'}
    assert not fleet.redis.leases


async def test_the_wait_for_another_process_is_bounded_and_a_dead_owner_is_no_owner() -> None:
    fleet, make = Fleet(), Making()
    make.open.clear()
    one, two = await fleet.process("p1"), await fleet.process("p2")
    owner = asyncio.create_task(one.outcome(SHARED, make))
    await wait_until(lambda: make.count)
    with pytest.raises(LocalWaitExceededError, match="another process"):
        await two.outcome(SHARED, Making())
    fleet.redis.sessions.pop("p1")
    assert (await two.outcome(SHARED, Making())).output == b'{"n":1}'
    make.open.set()
    assert (await owner).output == b'{"n":1}'  # the first completion stays and is served


async def test_a_stale_result_is_made_anew_once_a_run_and_one_that_fails_leaves_it() -> None:
    fleet = Fleet()
    local = await fleet.process()
    await local.outcome(SHARED, Making())
    fresh = replace(SHARED, run_id="r2", accepts=Accepts(not_before_ms=2_000, failed_not_before_ms=2_000))
    failed = await local.outcome(fresh, Making(fails=ValueError("no")))
    assert failed.error is not None and fleet.stored.by_key["s"].output == b'{"n":1}'
    make = Making(output=b"2")
    assert (await local.outcome(fresh, make)).output == b"2"
    assert (await local.outcome(fresh, make)).output == b"2"
    assert make.count == 1 and fleet.stored.by_key["s"].run_id == "r2"


async def test_a_result_that_does_not_last_answers_its_own_run_alone() -> None:
    local = await (fleet := Fleet()).process()
    assert (await local.outcome(SHARED, Making(lasting=False))).output == b'{"n":1}'
    assert (await local.outcome(SHARED, Making(output=b"9"))).output == b'{"n":1}'
    assert fleet.stored.by_key["s"].state is ReceiptState.FAILED
    assert (await local.outcome(replace(SHARED, run_id="r2"), Making(output=b"2"))).output == b"2"


async def test_a_short_outage_at_the_commit_is_waited_out() -> None:
    fleet, make = Fleet(replace(LIMITS, commit_retry_ms=5_000)), Making()
    make.open.clear()
    local = await fleet.process()
    asked = asyncio.create_task(local.outcome(WORK, make))
    await wait_until(lambda: make.count)
    fleet.stored.is_away = True
    make.open.set()
    await wait_until(lambda: fleet.stored.refused)
    fleet.stored.is_away = False
    assert (await asked).output == b'{"n":1}'
    assert make.count == 1


async def test_a_long_outage_latches_its_run_and_the_outcome_is_stored_when_postgres_is_back() -> None:
    fleet, make = Fleet(), Making()
    make.open.clear()
    local = await fleet.process()
    asked = asyncio.create_task(local.outcome(SHARED, make))
    await wait_until(lambda: make.count)
    fleet.stored.is_away = True
    make.open.set()
    with pytest.raises(PersistenceLostError):
        await asked
    assert list(fleet.redis.leases) == ["s"]
    fleet.stored.is_away = False
    await local.renew()
    assert fleet.stored.by_key["s"].output == b'{"n":1}' and not fleet.redis.leases
    assert (await local.outcome(SHARED, Making())).output == b'{"n":1}'


async def test_nothing_new_is_begun_while_outcomes_cannot_be_stored() -> None:
    fleet, make = Fleet(), Making()
    local = await fleet.process()
    fleet.stored.is_away = True
    with pytest.raises(ServiceUnreachableError):
        await local.outcome(WORK, make)
    assert make.count == 0


async def test_who_joins_another_run_s_read_is_not_served_what_is_too_old_for_it() -> None:
    fleet = Fleet()
    await (await fleet.process()).outcome(SHARED, Making())
    local, make = await fleet.process("p2"), Making(output=b"2")
    strict = replace(SHARED, run_id="r2", accepts=Accepts(not_before_ms=2_000, failed_not_before_ms=2_000))
    easy, fresh = await asyncio.gather(local.outcome(SHARED, Making()), local.outcome(strict, make))
    assert (easy.output, easy.cached) == (b'{"n":1}', True)
    assert (fresh.output, make.count) == (b"2", 1)


async def test_what_ends_one_run_does_not_end_another_that_joined_its_work() -> None:
    local, bad, good = await Fleet().process(), Making(fails=RunHaltedError("no credits")), Making()
    bad.open.clear()
    halted = asyncio.create_task(local.outcome(SHARED, bad))
    await wait_until(lambda: bad.count)
    other = asyncio.create_task(local.outcome(replace(SHARED, run_id="r2"), good))
    await asyncio.sleep(0)
    bad.open.set()
    assert (await other).output == b'{"n":1}' and good.count == 1
    with pytest.raises(RunHaltedError):
        await halted


async def test_another_run_is_served_the_outcome_that_had_to_wait_for_postgres() -> None:
    fleet = Fleet(replace(LIMITS, lane_wait_ms=5_000))
    local, make, again = await fleet.process(), Making(), Making()
    make.open.clear()
    asked = asyncio.create_task(local.outcome(SHARED, make))
    await wait_until(lambda: make.count)
    fleet.stored.is_away = True
    make.open.set()
    with pytest.raises(PersistenceLostError):
        await asked
    fleet.stored.is_away = False
    other = asyncio.create_task(local.outcome(replace(SHARED, run_id="r2"), again))
    await wait_until(lambda: fleet.stored.reads)
    await local.renew()
    assert (await other).output == b'{"n":1}' and again.count == 0
    assert not fleet.redis.leases


async def test_what_is_given_up_while_others_are_stored_late_is_stored_too() -> None:
    fleet = Fleet()
    local = await fleet.process()
    makes = [Making(), Making()]
    asked: list[asyncio.Task[Any]] = []
    for n, make in enumerate(makes):
        make.open.clear()
        asked.append(asyncio.create_task(local.outcome(replace(WORK, key=f"k{n}", run_id=f"r{n}"), make)))
    await wait_until(lambda: all(make.count for make in makes))
    fleet.stored.is_away = True
    makes[0].open.set()
    with pytest.raises(PersistenceLostError):
        await asked[0]
    storing = asyncio.Event()
    refuse = fleet.stored.read  # Postgres stays away until both have been given up

    async def slow(keys: Any) -> Any:
        storing.set()
        await wait_until(asked[1].done)
        return await refuse(keys)

    fleet.stored.read = slow  # type: ignore[method-assign]
    renewal = asyncio.create_task(local.renew())
    await storing.wait()
    fleet.stored.read = refuse  # type: ignore[method-assign]
    makes[1].open.set()
    with pytest.raises(PersistenceLostError):
        await asked[1]
    with pytest.raises(ServiceUnreachableError):
        await renewal
    fleet.stored.is_away = False
    await local.renew()
    assert set(fleet.stored.by_key) == {"k0", "k1"}
