"""Spans of a run are one trace wherever they are made; without an SDK there is none."""

from collections.abc import Iterator

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from runtime import tracing


@pytest.fixture
def exported(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer_provider", lambda: provider)
    yield exporter
    provider.shutdown()


def test_nothing_is_made_without_an_sdk() -> None:
    assert not tracing.is_on()
    with tracing.span("playlane.slice", "r-1", {}) as opened:
        assert opened is None
    with tracing.shared_span("playlane.batch", ["r-1"], {}) as opened:
        assert opened is None


def test_processes_that_never_met_make_one_trace(exported: InMemorySpanExporter) -> None:
    with tracing.span("playlane.run", "r-1", {"playlane.attempt": 1}):
        pass
    with (
        tracing.span("playlane.slice", "r-1", {"playlane.page": 3}),
        tracing.span("playlane.call", "r-1", {"playlane.tool": "t"}),
    ):
        pass
    run, call, slice_ = exported.get_finished_spans()
    trace_id = tracing.run_span_context("r-1").trace_id
    assert {one.context.trace_id for one in (run, call, slice_) if one.context} == {trace_id}
    assert slice_.context is not None
    assert call.parent is not None
    assert call.parent.span_id == slice_.context.span_id
    assert run.attributes == {"playlane.run_id": "r-1", "playlane.attempt": 1}


def test_a_span_of_another_run_never_hangs_below_the_open_one(exported: InMemorySpanExporter) -> None:
    with tracing.span("playlane.run", "r-1", {}), tracing.span("playlane.run", "r-2", {}):
        pass
    inner = exported.get_finished_spans()[0]
    assert inner.parent is not None
    assert inner.parent.span_id == tracing.run_span_context("r-2").span_id


def test_a_batch_links_to_every_run_that_it_serves(exported: InMemorySpanExporter) -> None:
    with tracing.shared_span("playlane.batch", ["r-1", "r-2", "r-1"], {"playlane.items": 3}):
        pass
    [batch] = exported.get_finished_spans()
    assert [link.context for link in batch.links] == [
        tracing.run_span_context("r-1"),
        tracing.run_span_context("r-2"),
    ]


def test_what_ended_elsewhere_is_told_afterwards(exported: InMemorySpanExporter) -> None:
    tracing.past_span(
        "playlane.dataset", "r-1", {"playlane.dataset": "d"}, start_s=1_000.0, failed="all rows failed"
    )
    [dataset] = exported.get_finished_spans()
    assert dataset.start_time == 1_000_000_000_000
    assert dataset.status.description == "all rows failed"
