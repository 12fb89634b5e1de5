"""Spans through the OpenTelemetry API alone: nothing is recorded, and next to nothing is spent, without an SDK.

All spans of a run share a trace whose id is computed from the run's id. So a slice on one host and the body on another
are one trace, without a word in any message; a batch, which serves several runs, links to the trace of each.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    ProxyTracerProvider,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
)

INSTRUMENTATION = "playlane"
Attributes = Mapping[str, str | int | float | bool]


def is_on() -> bool:
    """Whether an SDK records spans in this process."""
    return not isinstance(trace.get_tracer_provider(), ProxyTracerProvider)


def run_span_context(run_id: str) -> SpanContext:
    """What every process computes alike: the trace of a run and the span that stands for the run itself."""
    digest = hashlib.sha256(f"playlane:{run_id}".encode()).digest()
    return SpanContext(
        trace_id=int.from_bytes(digest[:16]),
        span_id=int.from_bytes(digest[16:24]),
        is_remote=True,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


@contextmanager
def span(name: str, run_id: str, attributes: Attributes) -> Iterator[Span | None]:
    """A span in the run's trace, below the one that is open here, if it is of the same run; None without an SDK."""
    if not is_on():
        yield None
        return
    with _tracer().start_as_current_span(
        name, context=_parent(run_id), attributes={"playlane.run_id": run_id, **attributes}
    ) as opened:
        yield opened


@contextmanager
def shared_span(name: str, run_ids: Iterable[str], attributes: Attributes) -> Iterator[Span | None]:
    """A span of its own trace that serves several runs, with a link to each; None without an SDK."""
    if not is_on():
        yield None
        return
    links = [Link(run_span_context(run_id)) for run_id in dict.fromkeys(run_ids)]
    with _tracer().start_as_current_span(
        name, context=Context(), kind=SpanKind.CLIENT, links=links, attributes=dict(attributes)
    ) as opened:
        yield opened


def past_span(
    name: str, run_id: str, attributes: Attributes, *, start_s: float, failed: str | None = None
) -> None:
    """A span that began at `start_s` (Unix time) and ends now, told by whoever saw its end."""
    if not is_on():
        return
    told = _tracer().start_span(
        name,
        context=_context(run_span_context(run_id)),
        start_time=int(start_s * 1e9),
        attributes={"playlane.run_id": run_id, **attributes},
    )
    if failed is not None:
        told.set_status(Status(StatusCode.ERROR, failed))
    told.end()


def _tracer() -> trace.Tracer:
    return trace.get_tracer(INSTRUMENTATION)


def _parent(run_id: str) -> Context | None:
    of_run = run_span_context(run_id)
    here = trace.get_current_span().get_span_context()
    return None if here.trace_id == of_run.trace_id else _context(of_run)


def _context(parent: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())
