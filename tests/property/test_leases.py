"""The Lua against the reference model: the same steps give the same answers, fences included."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest
from fakeredis import FakeAsyncRedis
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from redis.asyncio import Redis

from runtime.model.lease import BatchRecord, ClaimVerdict, Lease
from runtime.policy.limits import Limits
from runtime.redis_store import keys as redis_keys
from runtime.redis_store.connect import connect
from runtime.redis_store.leases import RedisLeases
from runtime.testing_redis import MemoryLeases, MemoryRedis

T = TypeVar("T")
LIMITS = Limits()
SESSIONS = ("s1", "s2", "s3")
KEYS = ("a", "b", "c", "d")
SETTINGS = settings(max_examples=40, stateful_step_count=30, deadline=None)

some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True)
session_ids = st.sampled_from(SESSIONS)


class LeaseMachine(RuleBasedStateMachine):
    """Time moves by hand; a session dies by `forget`, as an expiry would end it."""

    @staticmethod
    def make_redis() -> Redis:
        raise NotImplementedError

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.server = MemoryRedis(LIMITS, now_us=10**12)
        self.model = {session: MemoryLeases(self.server) for session in SESSIONS}
        self.redis = self.make_redis()
        self.lua = {session: RedisLeases(self.redis, LIMITS) for session in SESSIONS}
        self.held: dict[str, dict[str, int]] = {session: {} for session in SESSIONS}
        self.sealed: dict[str, BatchRecord] = {}
        self.batches = 0

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    def both(self, session: str, what: str, *arguments: Any) -> Any:
        """Do it in both worlds at the same time; the answers must agree."""
        for lua in self.lua.values():
            lua.now_us = self.server.now_us
        expected = self.run(getattr(self.model[session], what)(*arguments))
        answer = self.run(getattr(self.lua[session], what)(*arguments))
        if what not in ("renew", "register"):  # these return an epoch, which is random
            assert answer == expected, what
        return answer

    @initialize()
    def start(self) -> None:
        self.run(self.redis.flushdb())
        for session in SESSIONS:
            for world in (self.model, self.lua):
                self.run(world[session].register(session, first=True))

    @rule(by_us=st.sampled_from([1, 1_000, 5_000_000]))
    def pass_time(self, by_us: int) -> None:
        self.server.now_us += by_us
        for session in self.server.sessions:
            self.server.touch(session)  # only `kill` ends a session here

    @rule(session=session_ids, keys=some_keys, ahead=st.sampled_from([0, 0, 0, 7_000_000]))
    def claim(self, session: str, keys: list[str], ahead: int) -> None:
        floors = {keys[0]: self.server.now_us + ahead} if ahead else {}
        for claim in self.both(session, "claim", session, keys, floors):
            if claim.verdict is ClaimVerdict.GRANTED:
                self.held[session][claim.key] = claim.fence

    @rule(session=session_ids, keys=some_keys)
    def seal(self, session: str, keys: list[str]) -> None:
        self.batches += 1
        batch = BatchRecord(
            batch_id=f"b{self.batches}",
            session_id=session,
            lane="l",
            operation="op",
            strategy="keyed",
            revision="1",
            members=tuple({"key": key} for key in keys),
            fences=tuple(self.held[session].get(key, 1) for key in keys),
        )
        if all(self.both(session, "seal", batch)):
            self.sealed[batch.batch_id] = batch

    @rule(session=session_ids, keys=some_keys, data=st.data())
    def release(self, session: str, keys: list[str], data: st.DataObject) -> None:
        leases = [Lease(key=key, fence=self.held[session].get(key, 1)) for key in keys]
        batch_id = data.draw(st.sampled_from([None, *self.sealed]))
        self.both(session, "release", session, leases, batch_id)

    @rule(session=session_ids, data=st.data())
    def adopt(self, session: str, data: st.DataObject) -> None:
        batch_id = data.draw(st.sampled_from(["none", *self.sealed]))
        adopted = self.both(session, "adopt", session, batch_id)
        if adopted is not None:
            keys = [member["key"] for member in adopted.members]
            self.held[session] |= {
                key: fence for key, fence in zip(keys, adopted.fences, strict=True) if fence
            }

    @rule(session=session_ids)
    def renew(self, session: str) -> None:
        leases = [Lease(key=key, fence=fence) for key, fence in self.held[session].items()]
        mine = [batch for batch in self.sealed.values() if batch.session_id == session]
        self.both(session, "renew", session, leases, mine)

    @rule(session=session_ids)
    def kill(self, session: str) -> None:
        self.both(session, "forget", session)

    @rule()
    def lose_data(self) -> None:
        self.server.flush()
        self.run(self.redis.flushdb())

    @rule()
    def end_grace(self) -> None:
        self.server.grace_until_us = 0
        self.run(self.redis.delete(redis_keys.GRACE))

    @invariant()
    def worlds_agree(self) -> None:
        self.both("s1", "alive", KEYS)
        assert sorted(self.run(self.model["s1"].orphans(10))) == sorted(self.run(self.lua["s1"].orphans(10)))

    @invariant()
    def a_lease_has_one_fence_and_one_owner(self) -> None:
        for key, lease in self.server.leases.items():
            owners = [s for s in SESSIONS if self.held[s].get(key) == lease.fence and s == lease.session]
            assert len(owners) <= 1

    def teardown(self) -> None:
        self.run(self.redis.aclose())
        self.runner.close()


def machine(make: Callable[[], Redis]) -> type[LeaseMachine]:
    return type("LeaseMachineOnRedis", (LeaseMachine,), {"make_redis": staticmethod(make)})


def test_lua_on_fakeredis_agrees_with_the_model() -> None:
    run_state_machine_as_test(machine(FakeAsyncRedis), settings=SETTINGS)


@pytest.mark.servers
def test_lua_on_a_server_agrees_with_the_model(redis_url: str) -> None:
    run_state_machine_as_test(machine(lambda: connect(redis_url, LIMITS)), settings=SETTINGS)
