"""Phone numbers, domains, a customer's database, secrets and the echo of the reference API."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from examples.execution_api.app import create_app
from examples.execution_api.execution import ApiState
from examples.execution_api.public_web import ECHO_PATH, secrets_of

AUTH = {"authorization": "Bearer any"}


@pytest.fixture
async def http(state: ApiState) -> AsyncIterator[httpx.AsyncClient]:
    transport = httpx.ASGITransport(app=create_app(state))
    async with httpx.AsyncClient(transport=transport, base_url="http://api.example", headers=AUTH) as client:
        yield client


async def answers(http: httpx.AsyncClient, tool: str, *inputs: dict[str, Any]) -> list[Any]:
    body = {"payload": {"items": [{"key": str(n), "input": one} for n, one in enumerate(inputs)]}}
    reply = await http.post(f"/api/v2/integrations/{tool}_batch/execute", json=body)
    return [item.get("result", item) for item in reply.json()["toolResponse"]["rawV2"]["data"]["items"]]


async def answer(http: httpx.AsyncClient, tool: str, **input: Any) -> Any:
    reply = await http.post(f"/api/v2/integrations/{tool}/execute", json={"payload": input})
    return reply.json()["toolResponse"]["rawV2"]["data"] if reply.is_success else reply.json()["error"]


async def test_phone_numbers(http: httpx.AsyncClient) -> None:
    one, two, three = await answers(
        http,
        "phone_number",
        {"number": "+49 30 901820"},
        {"number": "(415) 555-2671", "region": "us"},
        {"number": "hello"},
    )
    assert (one["found"], one["e164"], one["region"], one["kind"]) == (
        True,
        "+4930901820",
        "DE",
        "fixed_line",
    )
    assert (two["e164"], two["country_code"]) == ("+14155552671", 1)
    assert not three["found"]
    assert (await answer(http, "phone_number", number="1", region="xx"))["code"] == "bad_region"


async def test_domains(http: httpx.AsyncClient) -> None:
    one, two, three = await answers(
        http,
        "domain_of",
        {"url": "https://www.shop.example.co.uk/a?b=c"},
        {"url": "acme.com"},
        {"url": "http://127.0.0.1:80/"},
    )
    assert (one["domain"], one["subdomain"], one["suffix"]) == ("example.co.uk", "www.shop", "co.uk")
    assert two["domain"] == "acme.com"
    assert not three["found"]


async def test_the_customers_database(http: httpx.AsyncClient) -> None:
    sql = "select name, staff from companies where staff > ? order by name"
    assert await answer(http, "query_customer_db", sql=sql, params=[100]) == {
        "rows": [{"name": "Acme", "staff": 120}, {"name": "Dynamo", "staff": 2300}],
        "truncated": False,
    }
    named = await answer(
        http, "query_customer_db", sql="select :a as b", params={"a": "x'; drop"}, max_rows=1
    )
    assert named["rows"] == [{"b": "x'; drop"}]
    for bad in ("delete from companies", "select 1; select 2", "select nothing", ""):
        assert (await answer(http, "query_customer_db", sql=bad))["code"] == "bad_sql"
    state = await answer(http, "query_customer_db", sql="select * from companies", max_rows=2)
    assert (len(state["rows"]), state["truncated"]) == (2, True)


async def test_secrets_are_given_to_who_has_the_token(http: httpx.AsyncClient, state: ApiState) -> None:
    state.secrets = secrets_of('{"ACME": "s3cr3t"}')
    assert "s3cr3t" not in repr(state)
    asked = {"action": "resolve_secret", "name": "ACME", "playName": "p"}
    assert (await http.post("/api/v2/plays/runtime", json=asked)).json() == {"value": "s3cr3t"}
    assert (await http.post("/api/v2/plays/runtime", json=asked | {"name": "B"})).status_code == 404
    assert (await http.post("/api/v2/plays/runtime", json={"action": "x"})).status_code == 400
    refused = await http.post("/api/v2/plays/runtime", json=asked, headers={"authorization": ""})
    assert refused.status_code == 401
    with pytest.raises(ValueError):
        secrets_of("[1]")


async def test_the_echo(http: httpx.AsyncClient) -> None:
    said = (await http.post(f"{ECHO_PATH}?a=1", content=b"hi", headers={"x-key": "v"})).json()
    assert (said["method"], said["query"], said["body"], said["headers"]["x-key"]) == (
        "POST",
        {"a": "1"},
        "hi",
        "v",
    )
    assert (await http.get(ECHO_PATH, params={"status": "503"})).status_code == 503
    moved = await http.get(ECHO_PATH, params={"to": "/elsewhere"})
    assert (moved.status_code, moved.headers["location"]) == (302, "/elsewhere")
    assert len((await http.get(ECHO_PATH, params={"bytes": "1000"})).content) == 1000
