"""Tools whose answer comes later: asked once whoever crashes, answered by an event or by asking after it."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from runtime.context.tool_result import ToolResult, tool_result
from runtime.engine.body_waits import BodyPlace, hastened
from runtime.engine.waiting_tools import WaitingCall, WaitingTools, call_name
from runtime.errors import (
    CallWaitExceededError,
    EventTimedOutError,
    RowWaitsError,
    ToolOutcomeUnknownError,
    ToolRejectedError,
)
from runtime.model import json_value
from runtime.model.boundary import BoundaryState, Event
from runtime.model.result_rules import ResultRules
from runtime.model.row_wait import WaitKind
from runtime.model.run import ClaimedRun
from runtime.model.tool import ToolMetadata
from runtime.model.tool_output import Origin
from runtime.model.waiting_tool import EventBoundary, EventRule, PollRule
from runtime.policy.limits import DEFAULT_LIMITS
from tests.contract.memory_world import memory_world
from tests.contract.stores_world import StoresWorld

RULE = EventRule()
TOOL = ToolMetadata(tool="ask_person", provider="p", event=RULE)
POLL = PollRule(tool="status", interval_ms=1_000)


@dataclass
class Api:
    """EventTools; `at_arm` happens before an arm is answered."""

    key: str = "answer:1"
    timeout_ms: float | None = 60_000
    finalizes: bool = False
    fails: Exception | None = None
    at_arm: Callable[[], Any] | None = None
    said: list[str] = field(default_factory=list)

    async def prepare(self, tool: str, org_id: str, input: Any, context: dict[str, Any]) -> EventBoundary:
        self.said.append("prepare")
        return self._boundary({"boundaryId": "b1"})

    async def arm(
        self, tool: str, org_id: str, input: Any, context: dict[str, Any], stated: dict[str, Any], **_: Any
    ) -> EventBoundary:
        self.said.append("arm")
        if self.at_arm is not None:
            await self.at_arm()
        if self.fails is not None:
            raise self.fails
        return self._boundary({**stated, "messageRef": "m1"})

    async def time_out(
        self, tool: str, org_id: str, input: Any, context: dict[str, Any], stated: dict[str, Any]
    ) -> None:
        self.said.append(f"timeout {stated.get('messageRef')}")

    def _boundary(self, stated: dict[str, Any]) -> EventBoundary:
        return EventBoundary(
            event_key=self.key, timeout_ms=self.timeout_ms, finalizes=self.finalizes, stated=stated
        )


class Stage:
    def __init__(self, world: StoresWorld, api: Api, run: ClaimedRun) -> None:
        self.world, self.api, self.run = world, api, run
        self.tools = WaitingTools(events=api, limits=DEFAULT_LIMITS)

    def call(self, metadata: ToolMetadata = TOOL) -> WaitingCall:
        place = BodyPlace(self.world.waits, self.world.runs, self.run, "tool:ask:0")
        return WaitingCall(
            org_id="org",
            context={},
            metadata=metadata,
            input={"q": 1},
            name=call_name(metadata.tool, {"q": 1}, 0),
            place=place,
        )

    async def ask(self, rule: EventRule = RULE) -> ToolResult:
        return (await self.tools.by_event(self.call(), rule))[0]

    async def rests(self, rule: EventRule = RULE) -> RowWaitsError:
        with pytest.raises(RowWaitsError) as met:
            await self.ask(rule)
        return met.value

    async def tell(self, payload: Any) -> None:
        await self.world.waits.deliver(Event(org_id="org", event_id="e1", key=self.api.key, payload=payload))

    async def next_attempt(self) -> None:
        await self.world.runs.release("r1", self.run.attempt)
        claimed = await self.world.runs.claim("r1", "s1")
        assert claimed is not None
        self.run = claimed


async def staged(api: Api | None = None) -> Stage:
    world = memory_world()
    return Stage(world, api or Api(), await world.held_run())


async def test_it_asks_once_and_an_event_brings_the_answer() -> None:
    stage = await staged()
    wait = (await stage.rests()).wait
    assert (wait.kind, wait.due_ms) == (WaitKind.EVENT, 60_000)
    await stage.next_attempt()
    await stage.rests()
    await stage.tell({"answer": "yes"})
    found = await stage.ask()
    assert (found.data, found.origin, found.tool) == ({"answer": "yes"}, Origin.CHECKPOINT, "ask_person")
    assert stage.api.said == ["prepare", "arm"]


async def test_an_answer_that_comes_while_it_is_asked_is_not_lost() -> None:
    stage = await staged()
    stage.api.at_arm = lambda: stage.tell("quick")
    assert (await stage.ask()).data == "quick"


async def test_a_crash_while_it_is_asked_leaves_the_outcome_unknown() -> None:
    stage = await staged()
    stage.api.fails = RuntimeError("the process dies")
    with pytest.raises(RuntimeError):
        await stage.ask()
    stage.api.fails = None
    await stage.next_attempt()
    for _ in range(2):
        with pytest.raises(ToolOutcomeUnknownError):
            await stage.ask()
    assert stage.api.said == ["prepare", "arm"]


async def test_a_crash_while_it_is_asked_is_repaired_where_that_is_harmless() -> None:
    stage = await staged()
    safe = EventRule(arm_repeats=True)
    stage.api.fails = RuntimeError("the process dies")
    with pytest.raises(RuntimeError):
        await stage.ask(safe)
    stage.api.fails = None
    await stage.next_attempt()
    await stage.rests(safe)
    assert stage.api.said == ["prepare", "arm", "arm"]


async def test_a_refused_wait_fails_the_same_way_each_time() -> None:
    stage = await staged(
        Api(fails=ToolRejectedError("no such channel", tool="ask_person", code="bad_channel"))
    )
    for _ in range(2):
        with pytest.raises(ToolRejectedError, match="no such channel"):
            await stage.ask()
    assert stage.api.said == ["prepare", "arm"]


@pytest.mark.parametrize("finalizes", [False, True])
async def test_when_time_is_up_the_tool_is_told_if_it_wants_to_be(finalizes: bool) -> None:
    stage = await staged(Api(finalizes=finalizes))
    await stage.rests()
    await stage.world.age(61)
    for _ in range(2):
        with pytest.raises(EventTimedOutError):
            await stage.ask()
    assert stage.api.said == ["prepare", "arm", *(["timeout m1"] if finalizes else [])]
    found = await stage.world.waits.find(stage.call().place.at(f"{stage.call().name}:event"))
    assert found is not None
    assert found.state is BoundaryState.TIMED_OUT


def test_an_ended_wait_hastens_its_own_operation() -> None:
    ended = ["wait:tool:a:1:x:event", "event:b:0"]
    assert hastened(["tool:a:1", "tool:a:11", "tool:b:0"], ended) == ["tool:a:1"]
    assert hastened(["tool:a:1", "tool:a:11"], ["lane:tool:a:1"]) == ["tool:a:1"]


# ---- start, then poll


@dataclass
class Job:
    """The calls of a job that is done at its `done_at`-th poll; each is made once, then answered by its receipt."""

    done_at: int = 3
    last: dict[str, Any] = field(default_factory=lambda: {"status": "done", "value": 7})
    made: list[str] = field(default_factory=list)
    receipts: dict[str, ToolResult] = field(default_factory=dict)

    async def once(self, tool: str, input: Any, *, private: str | None) -> tuple[ToolResult, bool]:
        key = private or "start"
        if key not in self.receipts:
            self.made.append(tool)
            n = self.made.count("status")
            data: dict[str, Any] = {"job_id": "j1", "status": "queued"}
            if tool == "status":
                assert input == {"job_id": "j1"}
                data = self.last if n >= self.done_at else {"status": "Running"}
            output = json_value.dumps(data)
            self.receipts[key] = tool_result(output, tool=tool, origin=Origin.LIVE, rules=ResultRules())
        return self.receipts[key], False


async def poll(stage: Stage, job: Job, rule: PollRule = POLL) -> ToolResult:
    metadata = replace(TOOL, tool="slow", event=None, poll=rule)
    return (await stage.tools.by_polling(stage.call(metadata), rule, cast(Any, job.once)))[0]


async def test_a_started_job_is_asked_after_until_it_is_done() -> None:
    stage, job = await staged(), Job()
    for n in range(3):
        with pytest.raises(RowWaitsError):
            await poll(stage, job)
        with pytest.raises(RowWaitsError) as met:
            await poll(stage, job)
        due_ms = met.value.wait.due_ms
        assert due_ms == pytest.approx(1_000 * 1.5**n)
        await stage.next_attempt()
        await stage.world.age((due_ms or 0) / 1000 + 0.001)
    assert (await poll(stage, job)).data == {"status": "done", "value": 7}
    assert job.made == ["slow", "status", "status", "status"]


async def test_a_job_that_failed_is_a_rejected_call() -> None:
    stage, job = await staged(), Job(done_at=1, last={"status": "failed", "error": "no such company"})
    with pytest.raises(RowWaitsError):
        await poll(stage, job)
    await stage.world.age(2)
    with pytest.raises(ToolRejectedError, match="no such company"):
        await poll(stage, job)


async def test_a_job_that_never_ends_has_a_bound() -> None:
    stage, job = await staged(), Job()
    with pytest.raises(CallWaitExceededError):
        await poll(stage, job, replace(POLL, interval_ms=86_400_001.0))


async def test_a_tool_that_is_done_at_once_is_not_asked_after() -> None:
    stage, job = await staged(), Job()
    job.receipts["start"] = tool_result(
        b'{"status":"done"}', tool="slow", origin=Origin.LIVE, rules=ResultRules()
    )
    assert (await poll(stage, job)).data == {"status": "done"}
