"""The reference execution API: real tools, keys that make repeats free, a ledger that tells the truth."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from examples.execution_api.app import create_app
from examples.execution_api.execution import ApiState
from examples.execution_api.ledger import Ledger

AUTH = {"authorization": "Bearer any"}


@pytest.fixture
async def http(state: ApiState) -> AsyncIterator[httpx.AsyncClient]:
    async with client_of(state) as client:
        yield client


def client_of(state: ApiState) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(state))
    return httpx.AsyncClient(transport=transport, base_url="http://api.example", headers=AUTH)


async def send(
    http: httpx.AsyncClient,
    operation: str,
    inputs: list[Any],
    *,
    key: str = "",
    item_keys: list[str] | None = None,
) -> httpx.Response:
    is_batch = operation.endswith("_batch")
    items = [{"key": str(n), "input": item} for n, item in enumerate(inputs)]
    return await http.post(
        f"/api/v2/integrations/{operation}/execute",
        headers={"x-deepline-idempotency-key": key},
        json={
            "payload": {"items": items} if is_batch else inputs[0],
            "metadata": {"parent_run_id": "run-1", "item_idempotency_keys": item_keys or []},
        },
    )


def items_of(reply: httpx.Response) -> list[Any]:
    return reply.json()["toolResponse"]["rawV2"]["data"]["items"]


def echoes(*names: str) -> list[Any]:
    return [{"item": name} for name in names]


async def test_timezones_are_real(http: httpx.AsyncClient) -> None:
    places = [
        {"latitude": 52.52, "longitude": 13.405},
        {"latitude": "40.7", "longitude": "-74.0"},
        {"latitude": 91, "longitude": 0},
        {"latitude": "north", "longitude": 0},
        {"latitude": True, "longitude": None},
    ]
    items = items_of(await send(http, "timezone_at_batch", places))
    assert items[0]["result"] == {"found": True, "timezone": "Europe/Berlin"}
    assert items[1]["result"]["timezone"] == "America/New_York"
    assert [item["error"]["code"] for item in items[2:]] == ["bad_coordinate"] * 3


async def test_countries_are_real_and_a_miss_is_no_error(http: httpx.AsyncClient) -> None:
    items = items_of(await send(http, "country_facts_batch", [{"code": "de"}, {"code": "XX"}, {"code": 7}]))
    assert items[0]["result"]["alpha_3"] == "DEU"
    assert items[1]["result"] == {"found": False, "code": "XX"}
    assert items[2]["error"]["code"] == "bad_country_code"


async def test_a_repeated_batch_key_is_free_and_equal(http: httpx.AsyncClient, state: ApiState) -> None:
    first = await send(http, "echo_batch", echoes("a", "b"), key="k", item_keys=["ia", "ib"])
    again = await send(http, "echo_batch", echoes("a", "b"), key="k", item_keys=["ia", "ib"])
    assert items_of(first) == items_of(again)
    assert [entry["charged"] for entry in state.ledger.entries] == [2, 0]
    assert (await send(http, "echo_batch", echoes("a", "c"), key="k")).json()["error"][
        "code"
    ] == "idempotency_key_reused"


async def test_a_repeated_item_key_is_free_in_another_batch(http: httpx.AsyncClient, state: ApiState) -> None:
    await send(http, "echo_batch", echoes("a", "b"), key="k1", item_keys=["ia", "ib"])
    reply = await send(http, "echo_batch", echoes("c", "b"), key="k2", item_keys=["ic", "ib"])
    assert [item["result"]["value"] for item in items_of(reply)] == ["v:c", "v:b"]
    assert state.ledger.entries[-1]["charged_items"] == ["c"]
    single = await send(http, "echo", echoes("b"), key="k3", item_keys=["ib"])
    assert single.json()["billing"] == {"credits": 0}
    reused = await send(http, "echo_batch", echoes("x"), key="k4", item_keys=["ib"])
    assert items_of(reused)[0]["error"]["code"] == "idempotency_key_reused"


async def test_requests_at_the_same_time_pay_for_an_item_once(
    http: httpx.AsyncClient, state: ApiState
) -> None:
    state.misbehaviour = state.misbehaviour.merged({"latency_ms": 5})
    batches = [["a", "b"], ["b", "c"], ["c", "a"], ["a", "b", "c", "d"]]
    replies = await asyncio.gather(
        *(
            send(http, "echo_batch", echoes(*batch), key=f"k{n}", item_keys=[f"i{name}" for name in batch])
            for n, batch in enumerate(batches)
        )
    )
    for batch, reply in zip(batches, replies, strict=True):
        assert [item["result"]["value"] for item in items_of(reply)] == [f"v:{name}" for name in batch]
    assert sum(entry["charged"] for entry in state.ledger.entries) == 4
    assert not state.items_in_flight
    assert not state.batches_in_flight


async def test_the_same_key_at_the_same_time_is_in_progress(http: httpx.AsyncClient, state: ApiState) -> None:
    state.misbehaviour = state.misbehaviour.merged({"latency_ms": 5})
    replies = await asyncio.gather(
        *(send(http, "echo", echoes("a"), key="k", item_keys=["ia"]) for _ in range(3))
    )
    assert sorted(reply.status_code for reply in replies) == [200, 409, 409]
    assert {r.json()["error"]["code"] for r in replies if r.status_code == 409} == {"invocation_in_progress"}


async def test_item_failures_and_refusals_cost_nothing(http: httpx.AsyncClient, state: ApiState) -> None:
    state.misbehaviour = state.misbehaviour.merged({"item_error": "b", "bad_item": "d07.example"})
    items = items_of(await send(http, "echo_batch", echoes("a", "b"), key="k1"))
    assert "result" in items[0]
    assert items[1]["error"]["credits"] == 0
    refused = await send(http, "echo_batch", echoes("a", "d07.example"), key="k2")
    assert refused.status_code == 400
    assert [entry["charged"] for entry in state.ledger.entries] == [1, 0]


async def test_replies_are_disturbed_but_what_is_stored_is_whole(
    http: httpx.AsyncClient, state: ApiState
) -> None:
    state.misbehaviour = state.misbehaviour.merged(
        {"drop_item": "a", "duplicate_item": "b", "stranger": True}
    )
    keys = ["ia", "ib"]
    disturbed = items_of(await send(http, "echo_batch", echoes("a", "b"), key="k", item_keys=keys))
    assert [item["key"] for item in disturbed] == ["1", "1", "stranger"]
    state.reset()
    assert len(items_of(await send(http, "echo_batch", echoes("a", "b"), key="k", item_keys=keys))) == 2


@pytest.mark.parametrize(
    ("operation", "body", "status"),
    [
        ("echo_batch", {"payload": {"items": []}}, 400),
        ("echo_batch", {"payload": {"items": [{"key": "0"}, {"key": "0"}]}}, 400),
        ("echo_batch", {"payload": {"items": [{"input": 1}]}}, 400),
        ("echo_batch", {"payload": {"items": [{"key": str(n), "input": {}} for n in range(101)]}}, 413),
        ("echo", {}, 400),
        ("echo", {"payload": 3}, 422),
        ("echo", {"payload": {"item": "a"}, "metadata": {"item_idempotency_keys": ["a", "b"]}}, 400),
        ("no_such", {"payload": {}}, 404),
    ],
)
async def test_requests_that_are_wrong(
    http: httpx.AsyncClient, operation: str, body: Any, status: int
) -> None:
    reply = await http.post(f"/api/v2/integrations/{operation}/execute", json=body)
    assert reply.status_code == status
    assert reply.json()["error"]["message"]


async def test_tokens() -> None:
    async with client_of(ApiState(ledger=Ledger(), token="right")) as http:
        assert (await http.get("/api/v2/plays/runtime-tools/echo")).status_code == 401
        right = {"authorization": "Bearer right"}
        assert (await http.get("/api/v2/plays/runtime-tools/echo", headers=right)).status_code == 200
        assert (await http.get("/healthz", headers={})).status_code == 200


async def test_the_ledger_and_control_endpoints(http: httpx.AsyncClient, state: ApiState) -> None:
    await send(http, "echo", echoes("a"), key="k1")
    first = (await http.get("/_ledger")).json()
    assert first["totals"] == {"requests": 1, "items": 1, "charged": 1, "credits": 1}
    assert first["entries"][0]["items"] == ["a"]
    assert first["entries"][0]["run_ids"] == ["run-1"]
    since = first["entries"][0]["time"]
    assert (await http.get("/_ledger", params={"since": since})).json()["entries"] == []
    assert (await http.get("/_ledger", params={"since": "soon"})).status_code == 400
    assert (await http.delete("/_ledger")).status_code == 204
    assert state.ledger.entries == []

    assert (await http.post("/_control", json={"latency_ms": 1})).json()["latency_ms"] == 1
    assert (await http.post("/_control", json={"no_such": 1})).status_code == 400
    assert (await http.get("/_control")).json()["latency_ms"] == 1
    assert (await http.delete("/_control")).json()["latency_ms"] == 0
    changes = {"metadata": {"echo": {"queueHints": [{"limit": 10, "perMs": 1000, "counts": "items"}]}}}
    await http.post("/_control", json=changes)
    assert (await http.get("/api/v2/plays/runtime-tools/echo")).json()["queueHints"][0]["limit"] == 10


async def test_keys_are_known_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "ledger.jsonl"
    keys = ["ia", "ib"]
    with closing(Ledger(path)) as ledger:
        async with client_of(ApiState(ledger=ledger)) as http:
            first = await send(http, "echo_batch", echoes("a", "b"), key="k", item_keys=keys)
    with path.open("ab") as file:
        file.write(b'{"time": 1, "oper')  # killed in mid-write
    with closing(Ledger(path)) as ledger:
        async with client_of(ApiState(ledger=ledger)) as http:
            again = await send(http, "echo_batch", echoes("a", "b"), key="k", item_keys=keys)
            await send(http, "echo", echoes("b"), key="k2", item_keys=["ib"])
        assert items_of(again) == items_of(first)
        assert [entry["charged"] for entry in ledger.entries] == [2, 0, 0]
    with closing(Ledger(path)) as ledger:
        assert len(ledger.entries) == 3
        ledger.clear()
    with closing(Ledger(path)) as ledger:
        assert ledger.entries == []


def test_the_command_says_what_it_takes() -> None:
    command = [sys.executable, "-m", "examples.execution_api", "--help"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert all(option in out for option in ("--host", "--port", "--latency-ms", "--ledger"))


async def test_a_forced_answer_may_carry_any_header(http: httpx.AsyncClient, state: ApiState) -> None:
    forced = {"status": 429, "headers": {"X-RateLimit-Reset": "7", "retry-after": "soon"}}
    await http.post("/_control", json={"answer": forced})
    reply = await send(http, "echo_single", echoes("a"))
    assert reply.status_code == 429
    assert (reply.headers["x-ratelimit-reset"], reply.headers["retry-after"]) == ("7", "soon")
