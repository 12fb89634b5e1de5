"""Spans and log lines of a run, as the engine itself makes them."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from runtime import play, tracing
from runtime.known_secrets import known_secrets
from runtime.model.failure import FailureClass
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.testing.plays import run_play
from tests.lane_stage import LaneStage, calls, echo, failing

Spans = Callable[[], dict[str, list[ReadableSpan]]]


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[Spans]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)

    def by_name() -> dict[str, list[ReadableSpan]]:
        found: dict[str, list[ReadableSpan]] = {}
        for span in exporter.get_finished_spans():
            found.setdefault(span.name, []).append(span)
        return found

    yield by_name
    provider.shutdown()


def attribute(span: ReadableSpan, name: str) -> Any:
    return (span.attributes or {})[f"playlane.{name}"]


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


SEEN: list[dict[str, Any]] = []  # what a log line would be given, by the place where it is written


def note(where: str) -> None:
    SEEN.append({"where": where, **structlog.contextvars.get_contextvars()})


async def found(row: Any, ctx: Any) -> Any:
    answer = await ctx.tools.execute(id="found", tool="find", input={"name": row["name"]})
    note(row["name"])
    return answer.data


@play("traced")
async def traced(ctx: Any, input: Any) -> Any:
    note("body")
    await ctx.tools.execute(id="head", tool="find", input={"name": "head"})
    done = (
        await ctx.dataset("companies", [{"name": name} for name in input]).with_column("found", found).run()
    )
    return {"done": done.completed}


def run_traced(names: list[str]) -> Any:
    return run_play(traced, names, tools={"find": _find})


def _find(input: Any) -> Any:
    if input["name"] == "broken":
        raise ValueError("no such company")
    return input["name"].upper()


def test_run_dataset_slice_and_calls_are_one_trace(spans: Spans) -> None:
    assert run_traced(["acme", "broken"]).ok
    seen = spans()
    assert len({span.context.trace_id for group in seen.values() for span in group if span.context}) == 1
    [dataset], [slice_] = seen["playlane.dataset"], seen["playlane.slice"]
    assert (attribute(dataset, "dataset"), attribute(dataset, "rows"), attribute(dataset, "failed")) == (
        "companies",
        2,
        1,
    )
    assert (attribute(slice_, "page"), attribute(slice_, "rows"), attribute(slice_, "end")) == (0, 2, "done")
    head, *of_rows = sorted(seen["playlane.call"], key=lambda span: span.start_time or 0)
    bodies = [span_id(body) for body in seen["playlane.run"]]
    assert parent(head) in bodies
    assert [parent(call) for call in of_rows] == [span_id(slice_)] * 2
    states = {call.status.status_code for call in of_rows}
    assert states == {StatusCode.UNSET, StatusCode.ERROR}
    assert {attribute(body, "play") for body in seen["playlane.run"]} == {"traced"}
    assert attribute(seen["playlane.run"][-1], "end") == "ended"


async def test_a_batch_is_in_the_trace_of_its_only_run_and_links_to_those_of_several(spans: Spans) -> None:
    stage = await LaneStage().start()
    await stage.finish(await stage.post(calls(3)))
    await stage.finish(await stage.post([*calls(2, "x"), *calls(2, "y", run_id="r2")]))
    alone, shared = spans()["playlane.batch"]
    of_run = tracing.run_span_context("r1")
    assert (alone.context.trace_id if alone.context else None) == of_run.trace_id
    assert (attribute(alone, "lane"), attribute(alone, "items")) == ("fakeprov", 3)
    assert [link.context for link in shared.links] == [of_run, tracing.run_span_context("r2")]
    assert shared.context is not None
    assert shared.context.trace_id != of_run.trace_id


async def test_each_physical_send_is_a_span_and_its_failure_is_told_without_secrets(spans: Spans) -> None:
    known_secrets.add("spans", "KEY", "very-secret-word")
    tries: list[PhysicalRequest] = []

    def once_down(request: PhysicalRequest) -> PhysicalReply:
        tries.append(request)
        if len(tries) == 1:
            error = failing(FailureClass.TRANSPORT_BEFORE_DISPATCH)
            raise type(error)(error.failure.__class__(**_with(error.failure, "no way to very-secret-word")))
        return echo(request)

    try:
        stage = await LaneStage(once_down).start()
        await stage.finish(await stage.post(calls(1)), within_ms=60_000)
    finally:
        known_secrets.forget("spans")
    first, second = spans()["playlane.batch"]
    assert (attribute(first, "send"), attribute(second, "send")) == (1, 2)
    assert first.status.status_code is StatusCode.ERROR
    assert "[secret KEY]" in str(first.status.description)
    assert first.events == ()


def _with(failure: Any, message: str) -> dict[str, Any]:
    return {name: getattr(failure, name) for name in failure.__slots__} | {"message": message}


def test_lines_say_of_which_run_dataset_and_row_they_are() -> None:
    SEEN.clear()
    assert run_traced(["acme", "apex"]).ok
    body = SEEN[0]
    run_id = body["run_id"]
    assert body == {"where": "body", "run_id": run_id, "play": "traced", "attempt": 1}
    rows = [line for line in SEEN if line["where"] != "body"]
    assert [line.pop("where") for line in rows] == ["acme", "apex"]
    assert len({line.pop("row") for line in rows}) == 2
    assert rows == [{"run_id": run_id, "dataset": "companies", "page": 0, "slice": 0}] * 2
    assert structlog.contextvars.get_contextvars() == {}


async def test_lines_of_a_lane_say_its_name() -> None:
    def broken(_request: PhysicalRequest) -> PhysicalReply:
        raise failing(FailureClass.REJECTED)

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as lines:
        stage = await LaneStage(broken).start()
        await stage.finish(await stage.post(calls(1)))
    assert [line["lane"] for line in lines if line.get("action") == "lane.send"] == ["fakeprov"]
    assert structlog.contextvars.get_contextvars() == {}
