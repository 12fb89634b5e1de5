"""From the wire to what an author holds: replies, metadata, and where things lie in results."""

from typing import Any

import httpx
import pytest

from runtime.context.tool_result import tool_result
from runtime.errors import PlaylaneError
from runtime.execution_api.lane_requests import LaneRequests
from runtime.model.outcome import ItemCompleted
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.result_rules import ResultRules
from runtime.model.tool_output import with_envelope
from runtime.policy.batching import SingleCall
from tests.unit.execution_api.conftest import answering

REQUEST = PhysicalRequest(
    org_id="o",
    operation="find",
    payload=b"{}",
    idempotency_key="k",
    item_idempotency_keys=("i",),
    run_ids=("r",),
    receipt_key="k",
    integration_mode=None,
    timeout_ms=1_000,
)


async def reply_of(body: Any) -> PhysicalReply:
    return await LaneRequests(answering(lambda _: httpx.Response(200, json=body))).send(REQUEST)


async def result_of(body: Any) -> Any:
    reply = await reply_of(body)
    split = SingleCall(operation="find").split(reply.result, [{}])
    (outcome,) = with_envelope(split.outcomes, reply.envelope, is_single=True, max_meta_bytes=16_000)
    assert isinstance(outcome, ItemCompleted)
    return tool_result(outcome.output_json, tool="find")


async def test_a_data_view_keeps_the_raw_response() -> None:
    raw = {"data": {"a": 1}, "meta": {"page": 1}, "warnings": ["w"]}
    found = await result_of(
        {
            "status": "completed",
            "job_id": "job-7",
            "toolResponse": {
                "rawV2": raw,
                "view": "data",
                "meta": {"provider": "p"},
                "responseMeta": {"ms": 3},
            },
        }
    )
    assert (found["a"], found.raw, found.job_id) == (1, raw, "job-7")
    assert found.meta == {"page": 1, "provider": "p", "ms": 3}


async def test_a_raw_view_is_its_own_data() -> None:
    found = await result_of({"status": "Success", "toolResponse": {"rawV2": {"x": [1]}, "view": "rawV2"}})
    assert (found.data, found.raw, found.status) == ({"x": [1]}, {"x": [1]}, "completed")


@pytest.mark.parametrize(
    ("body", "data"),
    [
        ({"status": "completed", "result": {"data": [1]}}, [1]),
        ({"status": "completed", "result": {"x": 1}}, {"x": 1}),
        ({"status": "completed", "toolResponse": {"raw": {"x": 1}}}, {"x": 1}),
    ],
)
async def test_legacy_replies_read_alike(body: Any, data: Any) -> None:
    found = await result_of(body)
    assert (found.data, found.raw) == (data, data)


async def test_no_result_is_told_from_a_result() -> None:
    assert (await result_of({"status": "no_result", "result": None})).status == "no_result"
    assert (await result_of({"status": "completed", "result": None})).status == "no_result"


async def test_metadata_says_where_things_lie() -> None:
    body = {
        "provider": "p",
        "extractors": {"email": {"paths": ["a.email"]}, "name": "a.name", "phone": ["p1", "p2"]},
        "targetGetters": {"email": ["a.email", "b.email"], "title": ["t"]},
        "listExtractorPaths": ["toolResponse.raw.people", "toolResponse.raw.people"],
        "listIdentityGetters": {"email": ["email"]},
    }
    metadata = await answering(lambda _: httpx.Response(200, json=body)).metadata("t", "o")
    assert metadata.results == ResultRules(
        targets=(
            ("email", ("a.email", "b.email")),
            ("name", ("a.name",)),
            ("phone", ("p1", "p2")),
            ("title", ("t",)),
        ),
        lists=("toolResponse.raw.people",),
        identities=(("email", ("email",)),),
    )
    assert ResultRules.of(metadata.results.to_json()) == metadata.results
    assert not (
        await answering(lambda _: httpx.Response(200, json={"provider": "p"})).metadata("t", "o")
    ).results


@pytest.mark.parametrize(
    "rules",
    [
        {"extractors": {"email": {"paths": [1]}}},
        {"extractors": {"email": 7}},
        {"targetGetters": {"": ["a"]}},
        {"targetGetters": {"email": ["x" * 301]}},
        {"listExtractorPaths": "people"},
    ],
)
async def test_rules_that_cannot_be_read_are_refused_with_their_place(rules: dict[str, Any]) -> None:
    client = answering(lambda _: httpx.Response(200, json={"provider": "p", **rules}))
    with pytest.raises(PlaylaneError, match=next(iter(rules))):
        await client.metadata("t", "o")
