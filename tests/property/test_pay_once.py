"""Leases in Redis and receipts in Postgres together, on real servers, as lane processes use them and as they fail.

A process claims, reads receipts under its leases, seals, sends, commits and releases; it may die or freeze between any
two of these and go on later. Whatever happens: nobody sends a key that another live process has sent and not finished,
fences only grow, and a completed receipt gives way to a newer refresh alone.
"""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from runtime.model.lease import BatchRecord, ClaimVerdict, Lease
from runtime.model.receipt import Receipt, ReceiptState, replaces
from runtime.policy.limits import Limits
from runtime.postgres_store.pool import open_pool
from runtime.postgres_store.receipts import PostgresReceipts
from runtime.redis_store import keys as redis_keys
from runtime.redis_store.connect import connect
from runtime.redis_store.leases import RedisLeases

T = TypeVar("T")
LIMITS = Limits()
PLACES = (0, 1)
KEYS = ("a", "b")
SETTINGS = settings(
    max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)

places = st.sampled_from(PLACES)
some_keys = st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True)
outcomes = st.sampled_from(
    [ReceiptState.COMPLETED, ReceiptState.COMPLETED, ReceiptState.FAILED, ReceiptState.UNKNOWN]
)


@dataclass(slots=True, eq=False)
class Process:
    """One life of a worker; a dead one may still act, as a frozen one does that wakes up."""

    session: str
    leases: RedisLeases
    is_live: bool = True
    held: dict[str, int] = field(default_factory=dict)
    refreshes: set[str] = field(default_factory=set)
    batches: dict[str, BatchRecord] = field(default_factory=dict)
    knows_loss: bool = True  # has put back what Redis lost


class PayOnce(RuleBasedStateMachine):
    redis_url: str
    database_url: str

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.redis = connect(self.redis_url, LIMITS)
        self.numbers = count(1)
        self.now_us = 10**12
        self.processes: dict[int, Process] = {}
        self.dead: list[Process] = []
        self.on_the_wire: dict[str, Process] = {}
        self.highest: dict[str, int] = {}
        self.stored: dict[str, Receipt] = {}
        self.run(self._open())

    async def _open(self) -> None:
        self.pool = open_pool(self.database_url, LIMITS)
        await self.pool.open()
        self.receipts = PostgresReceipts(self.pool, LIMITS)

    def run(self, work: Awaitable[T]) -> T:
        async def awaited() -> T:
            return await work

        return self.runner.run(awaited())

    # ---- lives

    @initialize()
    def start(self) -> None:
        self.run(self.redis.flushdb())
        self.run(self._empty())
        for place in PLACES:
            self._begin(place, first=True)

    async def _empty(self) -> None:
        async with self.pool.connection() as connection:
            await connection.execute("delete from receipts")

    def _begin(self, place: int, *, first: bool = False) -> None:
        process = Process(f"s{next(self.numbers)}", RedisLeases(self.redis, LIMITS, now_us=self.now_us))
        self.run(process.leases.register(process.session, first=first))
        self.processes[place] = process

    @rule(by_us=st.sampled_from([1, 1_000, 5_000_000]))
    def wait(self, by_us: int) -> None:
        self.pass_time(by_us)

    def pass_time(self, by_us: int) -> None:
        self.now_us += by_us
        for process in [*self.processes.values(), *self.dead]:
            process.leases.now_us = self.now_us
        for process in self.processes.values():
            self.run(self.redis.set(redis_keys.session(process.session), "1"))

    @rule(place=places)
    def die(self, place: int) -> None:
        """Its heartbeat is gone; another life begins in its place."""
        process = self.processes[place]
        process.is_live = False
        self.run(process.leases.forget(process.session))
        self.dead.append(process)
        self._begin(place)

    @rule()
    def lose_redis(self) -> None:
        """Who is alive puts back what it holds before the grace ends; what the dead held is gone."""
        self.run(self.redis.flushdb())
        for process in self.processes.values():
            process.knows_loss = False
        self.on_the_wire = {key: one for key, one in self.on_the_wire.items() if one.is_live}

    @rule(place=places)
    def renew(self, place: int) -> None:
        self._renew(self.processes[place])

    def _renew(self, process: Process) -> None:
        leases = [Lease(key=key, fence=fence) for key, fence in process.held.items()]
        self.run(process.leases.renew(process.session, leases, list(process.batches.values())))
        process.knows_loss = True

    @rule()
    def end_grace(self) -> None:
        for process in self.processes.values():
            if not process.knows_loss:
                self._renew(process)
        self.pass_time(int(LIMITS.session_ttl_s * 1e6))
        self.run(self.redis.delete(redis_keys.GRACE))

    # ---- what a lane does

    @rule(place=places, keys=some_keys, refresh=st.booleans())
    def admit(self, place: int, keys: list[str], refresh: bool) -> None:
        """Claim, read under the leases, claim above what is stored; let go of what a receipt answers."""
        process = self.processes[place]
        self._claim(process, keys, {})
        mine = [key for key in keys if key in process.held]
        stored = self.run(self.receipts.read(mine))
        answered = [key for key, one in stored.items() if one.state is ReceiptState.COMPLETED and not refresh]
        self._release(process, answered)
        low = {
            key: one.fence + 1
            for key, one in stored.items()
            if key in process.held and one.fence >= process.held[key]
        }
        if low:
            for key in low:
                process.held.pop(key)
            self._claim(process, list(low), low)
        replaced = {key for key, one in stored.items() if one.state is ReceiptState.COMPLETED}
        process.refreshes |= replaced & set(process.held)

    def _claim(self, process: Process, keys: list[str], floors: dict[str, int]) -> None:
        self.now_us += 10  # a server's clock moves on between two scripts
        process.leases.now_us = self.now_us
        for claim in self.run(process.leases.claim(process.session, keys, floors)):
            if claim.verdict is not ClaimVerdict.GRANTED:
                continue
            assert claim.fence >= self.highest.get(claim.key, 0), "fences only grow"
            if claim.fence == self.highest.get(claim.key):
                assert process.held.get(claim.key, claim.fence) == claim.fence
            assert claim.fence >= floors.get(claim.key, 0)
            self.highest[claim.key] = claim.fence
            process.held[claim.key] = claim.fence
            owners = [one.session for one in self.processes.values() if claim.key in one.held]
            assert owners == [process.session], "two live owners"

    @rule(
        place=places, keys=some_keys, refresh=st.booleans(), outcome=st.none() | outcomes, dies=st.booleans()
    )
    def work(
        self, place: int, keys: list[str], refresh: bool, outcome: ReceiptState | None, dies: bool
    ) -> None:
        """Several steps at once: admit and send; perhaps commit; perhaps die before the release."""
        self.admit(place, keys, refresh)
        self.send(place, keys)
        if outcome is not None:
            self.finish(place, outcome, not dies)
        if dies:
            self.die(place)

    @rule(place=places, keys=some_keys)
    def send(self, place: int, keys: list[str]) -> None:
        self._send(self.processes[place], keys)

    @rule(data=st.data(), keys=some_keys)
    def send_though_dead(self, data: st.DataObject, keys: list[str]) -> None:
        if self.dead:
            self._send(data.draw(st.sampled_from(self.dead)), keys)

    def _send(self, process: Process, keys: list[str]) -> None:
        """The request leaves right after the seal, so whoever has sealed has sent."""
        keys = [key for key in keys if key in process.held and self._batch_of(process, key) is None]
        if not keys:
            return
        batch = BatchRecord(
            batch_id=f"b{next(self.numbers)}",
            session_id=process.session,
            lane="l",
            operation="op",
            strategy="keyed",
            revision="1",
            members=tuple({"key": key} for key in keys),
            fences=tuple(process.held[key] for key in keys),
        )
        if not all(self.run(process.leases.seal(batch))):
            return
        if not process.is_live:  # nobody took its leases: it lives on as far as others can see
            self.run(self.redis.delete(redis_keys.session(process.session)))
        for key in keys:
            other = self.on_the_wire.get(key)
            assert other is None or other is process or not other.is_live, f"{key} was sent twice at once"
            self.on_the_wire[key] = process
        process.batches[batch.batch_id] = batch

    def _batch_of(self, process: Process, key: str) -> BatchRecord | None:
        return next((one for one in process.batches.values() if key in one.keys), None)

    @rule(place=places, data=st.data())
    def take_over(self, place: int, data: st.DataObject) -> None:
        process = self.processes[place]
        everybody = [*self.processes.values(), *self.dead]
        batches = {batch_id for one in everybody for batch_id in one.batches} - set(process.batches)
        if batches:
            self._adopt(process, data.draw(st.sampled_from(sorted(batches))))

    @rule(place=places, keys=some_keys, refresh=st.booleans(), outcome=outcomes, late=outcomes)
    def wake_after_takeover(
        self, place: int, keys: list[str], refresh: bool, outcome: ReceiptState, late: ReceiptState
    ) -> None:
        """A process freezes with a sent batch, another takes that over and ends it; then the first goes on."""
        self.work(place, keys, refresh, None, dies=True)
        frozen, finder = self.dead[-1], self.processes[1 - place]
        for batch_id in list(frozen.batches):
            self._adopt(finder, batch_id)
        self._finish(finder, outcome, releases=True)
        self._finish(frozen, late, releases=True)

    def _adopt(self, process: Process, batch_id: str) -> None:
        self.now_us += 10
        process.leases.now_us = self.now_us
        adopted = self.run(process.leases.adopt(process.session, batch_id))
        if adopted is None:
            return
        alive = [one.session for one in self.processes.values() if batch_id in one.batches]
        assert not alive, "taken from a live process"
        process.batches[adopted.batch_id] = adopted
        for key, fence in zip(adopted.keys, adopted.fences, strict=True):
            if fence:
                assert fence > self.highest.get(key, 0)
                self.highest[key] = fence
                process.held[key] = fence
                assert sum(key in one.held for one in self.processes.values()) == 1
                other = self.on_the_wire.get(key)
                assert other is None or not other.is_live or other is process
                self.on_the_wire[key] = process
        process.refreshes |= {key for key in adopted.keys if key in self.stored}

    @rule(place=places, outcome=outcomes, releases=st.booleans())
    def finish(self, place: int, outcome: ReceiptState, releases: bool) -> None:
        self._finish(self.processes[place], outcome, releases)

    @rule(data=st.data(), outcome=outcomes, releases=st.booleans())
    def finish_though_dead(self, data: st.DataObject, outcome: ReceiptState, releases: bool) -> None:
        if self.dead:
            self._finish(data.draw(st.sampled_from(self.dead)), outcome, releases)

    def _finish(self, process: Process, outcome: ReceiptState, releases: bool) -> None:
        """Commit every sent key; then release, or die in between."""
        for batch_id, batch in list(process.batches.items()):
            keys = [key for key in batch.keys if key in process.held]
            made = [self._receipt(process, key, outcome) for key in keys]
            answered = self.run(self.receipts.commit(process.session, made, ()))
            for receipt in made:
                if replaces(receipt, self.stored.get(receipt.key)):
                    self.stored[receipt.key] = receipt
                assert answered[receipt.key] == self.stored[receipt.key]
            if releases:
                self._release(process, keys, batch_id)

    def _receipt(self, process: Process, key: str, state: ReceiptState) -> Receipt:
        is_completed = state is ReceiptState.COMPLETED
        return Receipt(
            key=key,
            org_id="o",
            tool="t",
            run_id=process.session,
            state=state,
            fence=process.held[key],
            output=str(next(self.numbers)).encode() if is_completed else None,
            error=None if is_completed else {"code": "x"},
            refreshes=key in process.refreshes,
        )

    def _release(self, process: Process, keys: list[str], batch_id: str | None = None) -> None:
        leases = [Lease(key=key, fence=process.held.pop(key)) for key in keys]
        self.run(process.leases.release(process.session, leases, batch_id))
        if batch_id:
            process.batches.pop(batch_id)
        for key in keys:
            process.refreshes.discard(key)
            if self.on_the_wire.get(key) is process:
                del self.on_the_wire[key]

    # ---- what must hold

    @invariant()
    def receipts_are_what_the_rules_say(self) -> None:
        if self.processes:
            assert self.run(self.receipts.read(KEYS)) == self.stored

    @invariant()
    def one_live_process_holds_a_key(self) -> None:
        for key in KEYS:
            lease: dict[bytes, bytes] = self.run(self.redis.hgetall(f"lease:{key}"))  # type: ignore[arg-type]
            if lease:
                fence, session = int(lease[b"fence"]), lease[b"session"].decode()
                holders = [
                    one
                    for one in self.processes.values()
                    if one.held.get(key) == fence and one.session == session
                ]
                assert len(holders) <= 1
                assert fence <= self.highest.get(key, 0)

    def teardown(self) -> None:
        self.run(self.pool.close())
        self.run(self.redis.aclose())
        self.runner.close()


@pytest.mark.servers
@pytest.mark.timeout(120)
def test_a_key_is_sent_by_one_and_its_receipt_never_goes_back(database_url: str, redis_url: str) -> None:
    where = {"redis_url": redis_url, "database_url": database_url}
    run_state_machine_as_test(type("PayOnceOnServers", (PayOnce,), where), settings=SETTINGS)
