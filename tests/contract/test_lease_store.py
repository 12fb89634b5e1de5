"""One suite for LeaseStore: the fake, the Lua on fakeredis, and the Lua on a real server."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace

import pytest
from fakeredis import FakeAsyncRedis
from redis.asyncio import Redis

from runtime.model.lease import BatchRecord, Claim, ClaimVerdict, Lease
from runtime.policy.limits import Limits
from runtime.ports import LeaseStore
from runtime.redis_store.connect import connect
from runtime.redis_store.leases import RedisLeases
from runtime.testing_redis import MemoryLeases, MemoryRedis

LIMITS = Limits()


class Fleet:
    """Lease stores of many processes on one server; `lose_data` and `kill` are the world's doing."""

    def __init__(self, make: Callable[[], LeaseStore]) -> None:
        self._make = make
        self._stores: dict[str, LeaseStore] = {}

    async def join(self, session: str, *, first: bool = False) -> LeaseStore:
        store = self._stores[session] = self._make()
        await store.register(session, first=first)
        return store

    async def kill(self, session: str) -> None:
        await self._stores[session].forget(session)

    async def lose_data(self) -> None:
        raise NotImplementedError

    async def end_grace(self) -> None:
        raise NotImplementedError


class MemoryFleet(Fleet):
    def __init__(self) -> None:
        self.redis = MemoryRedis(LIMITS)
        super().__init__(lambda: MemoryLeases(self.redis))

    async def lose_data(self) -> None:
        self.redis.flush()

    async def end_grace(self) -> None:
        self.redis.grace_until_us = 0


class RedisFleet(Fleet):
    def __init__(self, redis: Redis) -> None:
        self.redis = redis
        super().__init__(lambda: RedisLeases(redis, LIMITS))

    async def lose_data(self) -> None:
        await self.redis.flushdb()

    async def end_grace(self) -> None:
        await self.redis.delete("leases:grace")


@pytest.fixture(params=["memory", "fakeredis", "server"])
async def fleet(request: pytest.FixtureRequest) -> AsyncIterator[Fleet]:
    if request.param == "memory":
        yield MemoryFleet()
        return
    url = request.getfixturevalue("redis_url") if request.param == "server" else ""
    redis: Redis = connect(url, LIMITS) if url else FakeAsyncRedis()
    yield RedisFleet(redis)
    keys = [key async for key in redis.scan_iter()]
    forever = [key for key in keys if await redis.ttl(key) < 0]
    await redis.aclose()
    assert not forever, "every key expires"


def record(batch_id: str, session: str, claims: list[Claim]) -> BatchRecord:
    return BatchRecord(
        batch_id=batch_id,
        session_id=session,
        lane="l",
        operation="op",
        strategy="keyed",
        revision="1",
        members=tuple({"key": claim.key, "input": {"n": 2**70, "text": "\u00e9"}} for claim in claims),
        fences=tuple(claim.fence for claim in claims),
    )


def verdicts(claims: list[Claim]) -> list[ClaimVerdict]:
    return [claim.verdict for claim in claims]


def lease(claim: Claim) -> Lease:
    return Lease(key=claim.key, fence=claim.fence)


async def test_a_claim_is_granted_once_and_repeats_for_its_holder(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    first = await one.claim("s1", ["a", "b"], {})
    assert verdicts(first) == [ClaimVerdict.GRANTED] * 2 and all(claim.fence > 0 for claim in first)
    assert await one.claim("s1", ["a", "b"], {}) == first
    assert verdicts(await two.claim("s2", ["b", "c"], {})) == [ClaimVerdict.HELD, ClaimVerdict.GRANTED]
    assert await two.alive(["a", "b", "c", "d"]) == {"a", "b", "c"}


async def test_release_frees_only_under_the_same_session_and_fence(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    (claim,) = await one.claim("s1", ["a"], {})
    await two.release("s2", [lease(claim)])
    await one.release("s1", [Lease(key="a", fence=claim.fence - 1)])
    assert await one.alive(["a"]) == {"a"}
    await one.release("s1", [lease(claim)])
    await one.release("s1", [lease(claim)])
    assert await one.alive(["a"]) == set()


async def test_floors_raise_fences_also_of_a_lease_already_held(fleet: Fleet) -> None:
    one = await fleet.join("s1", first=True)
    (claim,) = await one.claim("s1", ["a"], {})
    floor = claim.fence + 1_000_000_000
    raised, _other = await one.claim("s1", ["a", "b"], {"a": floor})
    assert raised.fence == floor
    assert [c.fence for c in await one.claim("s1", ["a"], {"a": floor})] == [floor]


async def test_a_dead_session_s_queued_lease_goes_to_the_next_with_a_newer_fence(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    (old,) = await one.claim("s1", ["a"], {})
    await fleet.kill("s1")
    assert await two.alive(["a"]) == set()
    (new,) = await two.claim("s2", ["a"], {})
    assert new.verdict is ClaimVerdict.GRANTED and new.fence > old.fence
    assert await one.seal(record("b1", "s1", [old])) == [False], "a late seal of the dead is refused"
    await one.release("s1", [lease(old)])
    assert await two.alive(["a"]) == {"a"}


async def test_seal_needs_every_lease_and_changes_nothing_otherwise(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    mine = await one.claim("s1", ["a", "b"], {})
    theirs = await two.claim("s2", ["c"], {})
    mixed = record("b1", "s1", [mine[0], *theirs, mine[1]])
    assert await one.seal(mixed) == [True, False, True]
    await fleet.kill("s1")
    assert await two.orphans(10) == []
    assert verdicts(await two.claim("s2", ["a", "b"], {})) == [ClaimVerdict.GRANTED] * 2


async def test_a_sealed_batch_of_a_dead_session_is_adopted_by_one(fleet: Fleet) -> None:
    one, two, three = await fleet.join("s1", first=True), await fleet.join("s2"), await fleet.join("s3")
    claims = await one.claim("s1", ["a", "b"], {})
    sealed = record("b1", "s1", claims)
    assert await one.seal(sealed) == [True, True] == await one.seal(sealed)
    assert verdicts(await one.claim("s1", ["a"], {})) == [ClaimVerdict.HELD]
    assert await two.adopt("s2", "b1") is None and await two.orphans(10) == []
    await fleet.kill("s1")
    taken = (await two.claim("s2", ["a"], {}))[0]
    assert (taken.verdict, taken.batch_id) == (ClaimVerdict.TAKEOVER, "b1")
    assert await three.orphans(10) == ["b1"]
    adopted = await two.adopt("s2", "b1")
    assert adopted is not None and adopted.members == sealed.members and adopted.session_id == "s2"
    assert all(new > old for new, old in zip(adopted.fences, sealed.fences, strict=True))
    assert await two.adopt("s2", "b1") == adopted, "a lost answer is asked for again"
    assert await three.adopt("s3", "b1") is None and await three.orphans(10) == []
    assert await two.seal(adopted) == [True, True]
    assert await one.seal(sealed) == [False, False]
    await two.release("s2", [Lease(key=k, fence=f) for k, f in zip("ab", adopted.fences, strict=True)], "b1")
    assert await three.alive(["a", "b"]) == set() and await two.adopt("s2", "b1") is None


async def test_a_dispatched_lease_without_its_record_is_free_once_its_session_is_dead(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    claims = await one.claim("s1", ["a"], {})
    await one.seal(record("b1", "s1", claims))
    await one.release("s1", [], "b1")
    assert verdicts(await two.claim("s2", ["a"], {})) == [ClaimVerdict.HELD]
    await fleet.kill("s1")
    assert verdicts(await two.claim("s2", ["a"], {})) == [ClaimVerdict.GRANTED]


async def test_lost_data_means_grace_in_which_holders_put_theirs_back(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    sent = await one.claim("s1", ["a", "b"], {})
    queued = await one.claim("s1", ["c"], {})
    sealed = record("b1", "s1", sent)
    await one.seal(sealed)
    await fleet.lose_data()
    assert verdicts(await two.claim("s2", ["a", "x"], {})) == [ClaimVerdict.GRACE] * 2
    await one.renew("s1", [lease(claim) for claim in [*sent, *queued]], [sealed])
    assert verdicts(await two.claim("s2", ["a", "c", "x"], {})) == [ClaimVerdict.GRACE] * 3
    assert await two.orphans(10) == [] and await two.adopt("s2", "b1") is None
    await fleet.end_grace()
    assert verdicts(await two.claim("s2", ["a", "b", "c", "x"], {})) == [ClaimVerdict.HELD] * 3 + [
        ClaimVerdict.GRANTED
    ]
    await fleet.kill("s1")
    adopted = await two.adopt("s2", "b1")
    assert adopted is not None and adopted.members == sealed.members


async def test_after_the_grace_it_is_too_late_to_put_back(fleet: Fleet) -> None:
    one, two = await fleet.join("s1", first=True), await fleet.join("s2")
    claims = await one.claim("s1", ["a"], {})
    await fleet.lose_data()
    await two.claim("s2", ["x"], {})
    await fleet.end_grace()
    await one.renew("s1", [lease(claims[0])], [])
    assert await two.alive(["a"]) == set()


async def test_a_first_start_waits_for_no_grace_and_the_epoch_stays(fleet: Fleet) -> None:
    one = await fleet.join("s1", first=True)
    assert verdicts(await one.claim("s1", ["a"], {})) == [ClaimVerdict.GRANTED]
    epoch = await one.renew("s1", [], [])
    two = await fleet.join("s2")
    assert await two.register("s2") == epoch == await one.renew("s1", [], [])
    await fleet.lose_data()
    assert await two.renew("s2", [], []) != epoch


async def test_many_keys_at_once(fleet: Fleet) -> None:
    one = await fleet.join("s1", first=True)
    keys = [f"{n:064x}" for n in range(1_000)]
    claims = await one.claim("s1", keys, {})
    assert [claim.key for claim in claims] == keys and set(verdicts(claims)) == {ClaimVerdict.GRANTED}
    assert await one.alive(keys) == set(keys)
    await one.release("s1", [lease(claim) for claim in claims])
    assert await one.alive(keys) == set()


async def test_a_member_that_went_to_another_session_is_not_sealed_again(fleet: Fleet) -> None:
    one, two, three = await fleet.join("s1", first=True), await fleet.join("s2"), await fleet.join("s3")
    claims = await one.claim("s1", ["a", "b"], {})
    await one.seal(record("b1", "s1", claims))
    await one.release("s1", [lease(claims[1])])
    theirs = (await three.claim("s3", ["b"], {}))[0]
    await fleet.kill("s1")
    adopted = await two.adopt("s2", "b1")
    assert adopted is not None and adopted.fences[0] > claims[0].fence and adopted.fences[1] == 0
    assert await two.seal(adopted) == [True, True]
    await three.release("s3", [lease(theirs)])
    assert verdicts(await three.claim("s3", ["a", "b"], {})) == [ClaimVerdict.HELD, ClaimVerdict.GRANTED]
    await fleet.lose_data()
    await two.renew("s2", [], [adopted])
    await fleet.end_grace()
    assert verdicts(await three.claim("s3", ["a", "b"], {})) == [ClaimVerdict.HELD, ClaimVerdict.GRANTED]


async def test_the_runs_behind_recorded_batches(fleet: Fleet) -> None:
    one = await fleet.join("s1", first=True)
    claims = await one.claim("s1", ["a", "b"], {})
    sealed = record("b1", "s1", claims)
    members = (
        {**sealed.members[0], "run_id": "r1", "inboxes": [["i", "r1"], ["i", "r2"]]},
        {**sealed.members[1], "run_id": "r3"},
    )
    await one.seal(replace(sealed, members=members))
    found = await one.orphans_of(["b1", "gone"])
    assert {batch_id: orphan.runs for batch_id, orphan in found.items()} == {
        "b1": frozenset({"r1", "r2", "r3"})
    }
