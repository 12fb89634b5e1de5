"""`run_play`: an author's test of a play, over a scripted world."""

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest

from runtime.errors import ToolRejectedError, ToolUnavailableError
from runtime.play import PlayRegistry, play
from runtime.testing.plays import PlayStuckError, run_play
from runtime.testing.scripted import FetchAnswer, ToolCalled

registry = PlayRegistry()


@play("enrich", registry=registry)
async def enrich(ctx: Any, input: Any) -> Any:
    ctx.log("begins", rows=len(input["names"]))

    async def domain(row: Any, ctx: Any) -> Any:
        return await ctx.tools.execute(id="domain", tool="find_domain", input={"name": row["name"]})

    async def site(row: Any, ctx: Any) -> Any:
        found = await ctx.fetch("site", f"https://{row['domain']['domain']}/", timeout_ms=1_000)
        return found.status

    made = await (
        ctx.dataset("companies", [{"name": name} for name in input["names"]])
        .with_column("domain", domain)
        .with_column("site", site)
        .run(key="name", on_row_error="isolate")
    )
    await ctx.sleep(timedelta(days=3))
    return {"completed": made.completed, "failed": made.failed}


def find_domain(input: Any) -> Any:
    if input["name"] == "Nobody":
        raise ToolRejectedError("there is no such company")
    return {"domain": f"{input['name'].lower()}.example"}


def test_a_play_runs_in_milliseconds() -> None:
    began = time.monotonic()
    done = run_play(
        enrich,
        {"names": ["Acme", "Nobody", "Beta"]},
        tools={"find_domain": find_domain},
        fetches={"https://acme.example": "hello", "https://beta.example/": 404},
        registry=registry,
    )
    assert time.monotonic() - began < 5
    assert done.ok
    assert done.result == {"completed": 2, "failed": 1}
    assert [(row["name"], row.get("site")) for row in done.rows()] == [
        ("Acme", 200),
        ("Nobody", None),
        ("Beta", 404),
    ]
    assert done.rows("companies")[0]["domain"]["domain"] == "acme.example"
    (failure,) = done.failures["companies"]
    assert "no such company" in failure["message"]
    assert ToolCalled(tool="find_domain", input={"name": "Acme"}) in done.calls
    assert sorted(one.url for one in done.fetched) == ["https://acme.example/", "https://beta.example/"]
    assert done.logs[0] == "begins"


def test_what_the_test_forgot_is_named() -> None:
    done = run_play(enrich, {"names": ["Acme"]}, registry=registry)
    (failure,) = done.failures["companies"]
    assert 'has no tool "find_domain"' in failure["message"]
    done = run_play(enrich, {"names": ["Acme"]}, tools={"find_domain": find_domain}, registry=registry)
    (failure,) = done.failures["companies"]
    assert "answers no fetch of https://acme.example/" in failure["message"]


@play("waits", registry=registry)
async def waits(ctx: Any, input: Any) -> Any:
    said = await ctx.wait_for_event("approval", key="order-1")
    return {"said": said}


def test_an_event_comes_when_it_is_awaited() -> None:
    done = run_play(waits, events={"order-1": {"approved": True}}, registry=registry)
    assert "approved" in str(done.result)
    late = run_play(waits, registry=registry)
    assert late.error is not None
    assert 'no event "order-1" came' in late.error["message"]


@play("endless", registry=registry)
async def endless(ctx: Any, input: Any) -> Any:
    while True:
        await ctx.sleep(1)


def test_a_play_without_an_end() -> None:
    with pytest.raises(PlayStuckError, match=r"did not end within 0\.3 s"):
        run_play(endless, registry=registry, timeout_s=0.3)


async def test_inside_a_running_loop() -> None:
    assert run_play(waits, events={"order-1": 1}, registry=registry).ok


@play("failing", registry=registry)
async def failing(ctx: Any, input: Any) -> Any:
    try:
        await ctx.tools.execute(id="a", tool="down", input={})
    except ToolUnavailableError as error:
        return {"why": str(error)}
    raise ValueError("not reached")


def test_scripted_failures() -> None:
    down = ToolUnavailableError("busy", retryable=True)
    assert run_play(failing, tools={"down": down}, registry=registry).result == {"why": "busy"}
    done = run_play(failing, tools={"down": 1}, registry=registry)
    assert not done.ok
    assert done.error is not None
    assert "not reached" in done.error["message"]


# ---- prints, logging, tasks left behind


@play("printing", registry=registry)
async def printing(ctx: Any, input: Any) -> Any:
    import logging

    print("from the body", end="")
    print(", in one line")

    async def column(row: Any, ctx: Any) -> Any:
        print("row", row["n"])
        logging.getLogger("mine").warning("careful %s", row["n"])
        logging.getLogger("httpx").warning("not the author's")
        await ctx.step("inside", lambda: print("in a step"))
        return row["n"]

    async def leaves(row: Any, ctx: Any) -> Any:
        asyncio.get_running_loop().create_task(asyncio.sleep(1000), name="forgotten")
        for_later = asyncio.ensure_future(asyncio.sleep(0))
        await for_later
        return 1

    await (
        ctx.dataset("rows", [{"n": n} for n in range(2)])
        .with_column("a", column)
        .with_column("b", leaves)
        .run(key="n", on_row_error="isolate")
    )
    return None


def test_prints_and_logging_are_kept(capsys: pytest.CaptureFixture[str]) -> None:
    done = run_play(printing, registry=registry)
    assert done.ok
    assert done.logs.count("from the body, in one line") == 1
    assert {"row 0", "row 1", "careful 0", "in a step"} <= set(done.logs)
    assert not any("not the author's" in line for line in done.logs)
    left = [line for line in done.logs if "still" in line or "left 1 task" in line]
    assert len(left) == 2
    assert 'column "b" left 1 task(s) running when it returned; cancelled: sleep' in left[0]
    assert "row 0" not in capsys.readouterr().out


# ---- secrets


@play("secretive", registry=registry)
async def secretive(ctx: Any, input: Any) -> Any:  # noqa: C901
    how = input["how"]
    token = await ctx.secrets.get("TOKEN")
    if how == "log":
        ctx.log(f"token is {token}", token=token)
        print("printed", token)
    if how == "result":
        return {"nested": [f"Bearer {token}"]}
    if how == "tool":
        await ctx.tools.execute(id="a", tool="t", input={"key": {"deep": token}})
    if how == "url":
        await ctx.fetch("a", f"https://api.example/?key={token}")
    if how == "header":
        await ctx.fetch("a", "https://api.example/", headers={"x-key": token})
    if how == "plain http":
        await ctx.fetch("a", "http://api.example/", auth=ctx.secrets.bearer("TOKEN"))
    if how == "error":
        raise ValueError(f"failed with {token}")
    if how == "step":
        await ctx.step("s", lambda: {"kept": token})
    if how == "handle":
        return {"handle": ctx.secrets.get("TOKEN")}
    if how == "log handle":
        ctx.log("x", handle=ctx.secrets.get("TOKEN"))
    if how == "format":
        return f"{ctx.secrets.get('TOKEN')}"
    return None


VALUE = "s3cr3t-/v+alue"


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("result", 'returned holds the secret "TOKEN" at $.nested[0]'),
        ("tool", 'the input of t holds the secret "TOKEN" at $.key.deep'),
        ("url", 'the secret "TOKEN" stands in the URL'),
        ("header", 'the secret "TOKEN" stands in headers["x-key"]'),
        ("plain http", "over TLS only"),
        ("step", 'what ctx.step("s") gave holds the secret "TOKEN" at $.kept'),
        ("handle", "a secret is never stored"),
        ("log handle", "ctx.log: handle is a secret"),
        ("format", "await ctx.secrets.get"),
        ("error", "failed with [secret TOKEN]"),
    ],
)
def test_a_secret_stays_where_it_belongs(how: str, says: str) -> None:
    done = run_play(secretive, {"how": how}, secrets={"TOKEN": VALUE}, tools={"t": 1}, registry=registry)
    assert done.error is not None, done
    assert says in done.error["message"]
    assert VALUE not in repr(done)
    assert done.fetched == []
    assert done.calls == []


def test_logs_are_redacted() -> None:
    done = run_play(secretive, {"how": "log"}, secrets={"TOKEN": VALUE}, registry=registry)
    assert done.logs == ["token is [secret TOKEN]", "printed [secret TOKEN]"]


def test_a_secret_that_nobody_has() -> None:
    done = run_play(secretive, {"how": ""}, registry=registry)
    assert done.error is not None
    assert done.error["code"] == "secret_unavailable"
    assert "PLAYLANE_SECRET_TOKEN" in done.error["message"]


@play("fetching", registry=registry)
async def fetching(ctx: Any, input: Any) -> Any:
    got = await ctx.fetch(
        "one",
        "https://api.example/v1",
        params={"q": "a b"},
        auth=[ctx.secrets.bearer("TOKEN"), ctx.secrets.header("TOKEN", "x-key", prefix="k ")],
    )
    token = await ctx.secrets.get("TOKEN")
    posted = await ctx.fetch(
        "two",
        "https://api.example/v2",
        method="POST",
        json={"token": token},
        idempotency_key="once",
        auth=ctx.secrets.basic("me", "TOKEN"),
    )
    await ctx.sleep(5)
    return {"one": got.json(), "two": posted.text, "ok": got.ok, "kept": got, "status": posted.status}


def test_a_fetch_carries_secrets_and_its_answer_is_free_of_them() -> None:
    def echo(request: Any) -> Any:
        return {"seen": request.headers["authorization"], "url": request.url}

    done = run_play(
        fetching,
        secrets={"TOKEN": VALUE},
        fetches={
            "https://api.example/v1": echo,
            "https://api.example/v2": lambda request: FetchAnswer(status=503, body=request.body),
        },
        registry=registry,
    )
    assert done.ok, done.error
    one, two = done.fetched  # once each, although the body is replayed after its sleep
    assert one.headers["authorization"] == f"Bearer {VALUE}"
    assert one.headers["x-key"] == f"k {VALUE}"
    assert one.url == "https://api.example/v1?q=a+b"
    assert VALUE.encode() in two.body
    assert two.headers["idempotency-key"] == "once"
    assert done.result["one"]["seen"] == "Bearer [secret TOKEN]"
    assert done.result["two"] == '{"token":"[secret TOKEN]"}'
    assert done.result["status"] == 503
    assert done.result["kept"]["headers"]["content-type"] == "application/json"
    assert VALUE not in repr(done.result)


# ---- the customer's database


@play("customers", registry=registry)
async def customers(ctx: Any, input: Any) -> Any:
    one = await ctx.customer_db.query("select * from t where a = ?", [1], max_rows=5)
    two = await ctx.customer_db.query("select * from t where a = ?", [1], max_rows=5)
    return {"rows": [one, two]}


def test_the_customers_database_is_asked_each_time() -> None:
    asked: list[Any] = []

    def query(input: Any) -> Any:
        asked.append(input)
        return {"rows": [{"n": len(asked)}]}

    done = run_play(customers, tools={"query_customer_db": query}, registry=registry)
    assert done.result == {"rows": [[{"n": 1}], [{"n": 2}]]}
    assert asked[0] == {"sql": "select * from t where a = ?", "params": [1], "max_rows": 5}
    done = run_play(customers, tools={"query_customer_db": {"rows": 3}}, registry=registry)
    assert done.error is not None
    assert "no list of rows" in done.error["message"]
