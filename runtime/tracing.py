"""Spans through the OpenTelemetry API alone: nothing is recorded, and next to nothing is spent, without an SDK.

All spans of a run share a trace whose id is computed from the run's id. So a slice on one host and the body on another
are one trace, without a word in any message; a batch that serves several runs has a trace of its own that links to
each of theirs.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

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

from runtime.known_secrets import known_secrets
from runtime.model.error_text import named

INSTRUMENTATION = "playlane"
STATUS_CHARS = 500
Attributes = Mapping[str, str | int | float | bool]

_OFF: AbstractContextManager[Span | None] = nullcontext()


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


def span(name: str, run_id: str, attributes: Attributes) -> AbstractContextManager[Span | None]:
    """A span in the run's trace, below the one that is open here, if it is of the same run; None without an SDK."""
    if not is_on():
        return _OFF
    return _opened(name, _parent(run_id), {"playlane.run_id": run_id, **attributes})


def shared_span(
    name: str, run_ids: Iterable[str], attributes: Attributes
) -> AbstractContextManager[Span | None]:
    """A span of a request that may serve several runs: in the trace of its only run, else in one that links to all."""
    if not is_on():
        return _OFF
    served = list(dict.fromkeys(run_ids))
    if len(served) == 1:
        context = _context(run_span_context(served[0]))
        return _opened(name, context, {"playlane.run_id": served[0], **attributes}, kind=SpanKind.CLIENT)
    links = [Link(run_span_context(run_id)) for run_id in served]
    return _opened(name, Context(), attributes, kind=SpanKind.CLIENT, links=links)


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
        told.set_status(Status(StatusCode.ERROR, known_secrets.redacted(failed)[:STATUS_CHARS]))
    told.end()


@contextmanager
def _opened(
    name: str,
    context: Context | None,
    attributes: Attributes,
    *,
    kind: SpanKind = SpanKind.INTERNAL,
    links: list[Link] | None = None,
) -> Iterator[Span]:
    # An exception's own text and trace may hold what must not leave: its redacted words are the status.
    with _tracer().start_as_current_span(
        name,
        context=context,
        kind=kind,
        links=links,
        attributes=dict(attributes),
        record_exception=False,
        set_status_on_exception=False,
    ) as opened:
        try:
            yield opened
        except Exception as error:
            text = known_secrets.redacted(named(error))
            opened.set_status(Status(StatusCode.ERROR, text[:STATUS_CHARS]))
            raise


def _tracer() -> trace.Tracer:
    return trace.get_tracer(INSTRUMENTATION)


def _parent(run_id: str) -> Context | None:
    of_run = run_span_context(run_id)
    here = trace.get_current_span().get_span_context()
    return None if here.trace_id == of_run.trace_id else _context(of_run)


def _context(parent: SpanContext) -> Context:
    return trace.set_span_in_context(NonRecordingSpan(parent), Context())
