"""A provider's concurrency slots when the process that holds them is killed, or stops and wakes up too late."""

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from secrets import token_hex
from typing import Any

import pytest

from runtime.model.lane_state import LaneState
from runtime.model.run import RunState
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.redis_store import keys
from runtime.redis_store.connect import connect
from runtime.redis_store.lane_states import lane_states
from tests.chaos.ledger import Ledger
from tests.chaos.runs import _in_path
from tests.chaos.stack_under_test import LIMITS, METADATA, StackUnderTest
from workers.stack.stack import PLAYLANE

CAP, QUEUED = 5, 20
CALL_S = 2.0  # ends at the provider before a dead process's slots may come back
TTL_S = float(LIMITS["session_ttl_s"])
SOON_S = 5.0
PROVIDER = "fakeprov"
HINT = {"provider": PROVIDER, "limit": 1_000, "perMs": 1_000, "counts": "requests", "maxConcurrency": CAP}


class Slots:
    """Runs of one organisation, whose calls share the slots of a provider."""

    def __init__(self, stack: StackUnderTest) -> None:
        self.stack = stack
        self.org_id = f"org-{token_hex(3)}"
        self.runs: dict[str, int] = {}

    def start(self, rows: int) -> None:
        with self.stack.client(self.org_id) as client:
            run_id = client.enqueue("slow_lane", {"tag": token_hex(3), "rows": rows})
        self.runs[run_id] = rows

    def entries(self) -> list[Any]:
        """What the provider was sent, in order of arrival; it is told of when it was answered."""
        found = [entry for run_id in self.runs for entry in Ledger.of_run(self.stack.api_url, run_id).entries]
        return sorted(found, key=lambda entry: entry["time"])

    def holders(self) -> list[tuple[int, float]]:
        """(pid, since) of every slot that somebody alive holds."""
        states = asyncio.run(self._states())
        mine = [one for state in states if state.org_id == self.org_id for one in state.holders]
        return [(self._pids()[one.session_id], one.since_ms / 1000) for one in mine]

    def shown(self) -> list[tuple[int, float]]:
        """The same, as somebody at a shell sees it."""
        env = {
            **os.environ,
            "PLAYLANE_DATABASE_URL": self.stack.servers.database_url,
            "PLAYLANE_REDIS_URL": self.stack.servers.redis_url,
        }
        done = subprocess.run(
            [*PLAYLANE, "lanes", "--json"], env=env, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        scopes = [scope for line in done.stdout.splitlines() for scope in json.loads(line)["scopes"]]
        (mine,) = [scope for scope in scopes if scope["org_id"] == self.org_id]
        assert mine["concurrency"] == CAP
        return [
            (self._pids()[one["session_id"]], datetime.fromisoformat(one["since"]).timestamp())
            for one in mine["holders"]
        ]

    def _pids(self) -> dict[str, int]:
        return dict(self.stack.sql("select session_id, pid from sessions"))

    async def _states(self) -> list[LaneState]:
        redis = connect(_in_path(self.stack.servers.redis_url, "2"), DEFAULT_LIMITS)
        try:
            return await lane_states(redis)
        finally:
            await redis.aclose()

    def held(self) -> int:
        """Slots in use, by Redis' own count."""
        with self.stack.redis(2) as state:
            return state.hlen(keys.pace(self.org_id, PROVIDER)[2])  # type: ignore[no-any-return]

    def until_full(self) -> float:
        """All slots are taken by calls on the wire, and the lane is known; returns when that was seen."""
        self.stack.until(lambda: self.held() == CAP, "calls in all slots", 20)
        full_at, name = time.time(), keys.lane(PROVIDER, self.org_id, PROVIDER)
        with self.stack.redis(2) as state:
            self.stack.until(lambda: state.zscore(keys.LANES, name), "word of the lane", CALL_S)
        assert self.held() == CAP
        return full_at

    def check(self) -> None:
        """All runs end right; never were there more calls at the provider than slots, and none is left in use."""
        with self.stack.client(self.org_id) as client:
            for run_id, rows in self.runs.items():
                self.stack.until(lambda run_id=run_id: client.status(run_id).ended_at, f"the end of {run_id}")
                status = client.status(run_id)
                assert (status.state, status.result) == (
                    RunState.COMPLETED,
                    {"completed": rows, "failed": 0},
                )
        charged = [item for entry in self.entries() for item in entry["charged_items"]]
        assert (len(charged), len(set(charged))) == (CAP + QUEUED, CAP + QUEUED)
        assert most_at_once(self.entries()) == CAP
        self.stack.until(lambda: self.held() == 0, "no slot in use")


def most_at_once(entries: Sequence[Any]) -> int:
    """Most requests that the provider worked on at any moment."""
    begun = [entry["time"] for entry in entries if entry["status"] == 200]
    return max(sum(at - CALL_S < other <= at for other in begun) for at in begun)


@pytest.fixture
def slots(stack: StackUnderTest) -> Iterator[Slots]:
    stack.control({"metadata": METADATA | {"echo_single": {"queueHints": [HINT]}}})
    stack.latency_ms(CALL_S * 1_000)
    yield Slots(stack)
    stack.control({"metadata": METADATA})


def test_slots_of_a_killed_process_come_back_after_one_lease_time(slots: Slots) -> None:
    """Five calls of two seconds fill all slots when their process is killed; twenty more are queued. Those go on when
    the dead session has ended, five at a time, and the first five are asked for again and paid once."""
    stack = slots.stack
    slots.start(CAP)
    slots.until_full()
    killed, killed_at = stack.kill("lanes"), time.time()
    slots.start(QUEUED)
    stack.until_restarted("lanes", killed)
    back_at = max(time.time(), killed_at + TTL_S)
    slots.check()
    later = [entry["time"] for entry in slots.entries() if entry["time"] > killed_at]
    assert len(later) >= QUEUED
    assert later[0] - back_at < SOON_S


def test_a_frozen_process_that_wakes_up_frees_no_slot_of_others(slots: Slots) -> None:
    """Frozen with all slots, beyond its session: another process takes them. Awake again, what it still releases is
    not its own any more: with calls waiting for every slot, never a sixth one leaves."""
    stack = slots.stack
    began_at = time.time()
    slots.start(CAP)
    full_at = slots.until_full()
    frozen = stack.signal("lanes", signal.SIGSTOP)
    held = slots.holders()
    assert [pid for pid, _ in held] == [frozen] * CAP
    assert all(began_at - 1 < since < full_at + 1 for _, since in held)
    with stack.second("lanes") as second:
        slots.start(QUEUED)
        stack.until(
            lambda: [pid for pid, _ in slots.holders()] == [second.pid] * CAP,
            "all slots held by the other one",
        )
        stack.until_session_ended("lanes", frozen)  # its slots ended with its heartbeat, which may be sooner
        taken_at = min(since for _, since in slots.holders())
        stack.signal("lanes", signal.SIGCONT)
        shown = stack.until(slots.shown, "slots in the list of lanes")
        assert frozen not in {pid for pid, _ in shown}
        assert all(taken_at - 1 < since < time.time() for _, since in shown)
        stack.until_restarted("lanes", frozen)
        slots.check()
    assert stack.endings("lanes")[-1] == "ended with exit code 75"
