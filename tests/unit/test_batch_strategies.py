"""Strategies that a deployment registers for its own tools."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from runtime.batch_strategies import KeyedBatch, SingleCall, batch_strategies
from runtime.errors import PlayDefinitionError
from runtime.model.call import AnswerState
from runtime.model.outcome import ItemCompleted, ItemOutcome, ItemUnknown, Split
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.tool import BatchRule
from tests.lane_stage import LaneStage, calls, tool


@dataclass(frozen=True, slots=True, kw_only=True)
class ByItem:
    """One list of items there, one object by item back."""

    breaks: str = ""
    name: str = "by_item"
    revision: str = "1"
    operation: str = "echo_many"
    max_batch_size: int = 3

    def bucket(self, input: Any) -> str:
        if self.breaks == "bucket":
            raise KeyError("region")
        return ""

    def payload(self, inputs: Sequence[Any]) -> Any:
        if self.breaks == "payload":
            raise KeyError("item")
        return {"asked": [given["item"] for given in inputs]}

    def split(self, reply: Any, inputs: Sequence[Any]) -> Split:
        if self.breaks == "split":
            raise KeyError("item")
        return Split(outcomes=tuple(self._outcome(reply, given["item"]) for given in inputs))

    def _outcome(self, reply: Any, item: str) -> ItemOutcome:
        if item not in reply:
            return ItemUnknown(reason="not in the reply")
        return ItemCompleted(output_json=orjson.dumps(reply[item]), credits=None)


def answer(request: PhysicalRequest) -> PhysicalReply:
    return PhysicalReply(result={item: f"v:{item}" for item in orjson.loads(request.payload)["asked"]})


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    yield
    batch_strategies.forget("echo")


async def sent_by(strategy: Any, count: int = 7) -> tuple[LaneStage, list[AnswerState]]:
    batch_strategies.register("echo", strategy)
    stage = await LaneStage(answer, metadata=tool(100)).start()
    posted = calls(count)
    await stage.finish(await stage.post(posted), within_ms=20)
    answers = await stage.answers()
    return stage, [answers[call.key].state for call in posted]


async def test_a_registered_strategy_goes_before_what_metadata_declare() -> None:
    stage, states = await sent_by(ByItem())
    assert states == [AnswerState.COMPLETED] * 7
    assert [request.operation for request in stage.requests.sent] == ["echo_many"] * 3
    assert [len(orjson.loads(request.payload)["asked"]) for request in stage.requests.sent] == [3, 3, 1]
    assert stage.balanced()


async def test_without_a_payload_nothing_is_sent_and_its_calls_say_why() -> None:
    stage, states = await sent_by(ByItem(breaks="payload"))
    assert states == [AnswerState.FAILED] * 7 and not stage.requests.sent
    assert {one.error["code"] for one in stage.receipts.stored.values() if one.error} == {
        "bad_batch_strategy"
    }
    assert stage.balanced()


async def test_a_call_without_a_bucket_travels_alone() -> None:
    stage, states = await sent_by(ByItem(breaks="bucket"))
    assert states == [AnswerState.COMPLETED] * 7 and len(stage.requests.sent) == 7


async def test_a_reply_that_cannot_be_split_was_paid_and_ends_unknown() -> None:
    stage, states = await sent_by(ByItem(breaks="split"), 2)
    assert states == [AnswerState.UNKNOWN] * 2 and len(stage.requests.sent) == 1
    assert stage.balanced()


def test_a_tool_has_one_strategy_and_a_usable_one() -> None:
    batch_strategies.register("echo", ByItem())
    batch_strategies.register("echo", ByItem())
    with pytest.raises(PlayDefinitionError, match="two batch strategies"):
        batch_strategies.register("echo", SingleCall(operation="echo"))
    batch_strategies.forget("echo")
    with pytest.raises(PlayDefinitionError, match="at least 1"):
        rule = BatchRule(operation="echo_batch", max_batch_size=0)
        batch_strategies.register("echo", KeyedBatch(rule=rule, key_field="key"))
