"""The events of a run from now, or from its beginning, to its end; Redis tells early, Postgres tells for sure."""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from runtime.errors import ServiceUnreachableError
from runtime.model.events import RunEvent
from runtime.model.run import ENDED_RUNS
from runtime.model.status import RunStatus
from runtime.policy.limits import Limits
from runtime.policy.run_summary import summary
from runtime.redis_store.event_stream import BEGINNING

_Milestone = tuple[str, str]


class Stream(Protocol):
    def read(self, run_id: str, after: str, *, block: bool = True) -> list[tuple[str, RunEvent]]: ...


def follow(
    run_id: str,
    stream: Stream,
    status: Callable[[str], RunStatus],
    limits: Limits,
    *,
    pause: Callable[[float], None] = time.sleep,
) -> Iterator[RunEvent]:
    """Every event that can be had, the last one always. A Redis that is away, or lost its data, costs the samples.

    Raises UnknownRunError, and ServiceUnreachableError if Postgres is away.
    """
    place, told = BEGINNING, set[_Milestone]()
    has_ended = status(run_id).state in ENDED_RUNS
    is_old = has_ended
    while True:
        found = _read(stream, run_id, place, pause, limits, block=not is_old)
        for at, event in found:
            if not event.is_last:
                place = at
                told.add(_milestone(event))
                yield event
        if found and not found[-1][1].is_last:
            continue
        now = status(run_id)
        if now.state in ENDED_RUNS and (has_ended or found):
            yield from (event for event in summary(now) if event.is_last or _milestone(event) not in told)
            return
        # Seen ended, but more may still be told of it: one look more at the stream.
        has_ended = now.state in ENDED_RUNS


def _read(
    stream: Stream, run_id: str, place: str, pause: Callable[[float], None], limits: Limits, *, block: bool
) -> list[tuple[str, RunEvent]]:
    try:
        return stream.read(run_id, place, block=block)
    except ServiceUnreachableError:
        if block:
            pause(limits.event_block_s)
        return []


def _milestone(event: RunEvent) -> _Milestone:
    return event.event.type, str(getattr(event.event, "dataset", ""))
