"""What lanes tell of the runs that they work for; counts of a moment together, so that small requests cost little."""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable

from runtime.engine.lane_flight import Flight
from runtime.model.events import LaneActivity, ToolCallSettled, ToolCallStarted
from runtime.model.failure import Failure, FailureClass
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy.limits import Limits
from runtime.ports import EventSink, no_events

Key = tuple[str, str, str]  # run, tool, lane
_STATES = {
    ReceiptState.COMPLETED: "completed",
    ReceiptState.FAILED: "failed",
    ReceiptState.UNKNOWN: "unknown",
}


class LaneEvents:
    """Belongs to a lane engine's loop."""

    def __init__(self, events: EventSink, limits: Limits) -> None:
        self._events = events
        self._limits = limits
        self._started: Counter[Key] = Counter()
        self._settled: dict[Key, Counter[str]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._is_on = events is not no_events

    def sent(self, flight: Flight) -> None:
        """A request leaves."""
        if not self._is_on:
            return
        self._started.update(_keys(flight))
        self._soon()

    def settled(self, flight: Flight, receipts: Iterable[Receipt], duration_ms: float) -> None:
        """Its outcomes are stored."""
        if not self._is_on:
            return
        for key, receipt in zip(_keys(flight), receipts, strict=True):
            counts = self._settled.setdefault(key, Counter())
            counts[_STATES.get(receipt.state, "unknown")] += 1
            counts["duration_ms"] = max(counts["duration_ms"], round(duration_ms))
        self._soon()

    def held_up(self, flight: Flight, failure: Failure, wait_ms: float, *, is_closed: bool) -> None:
        """The provider wants a pause, or the request is sent again."""
        until_ms = time.time_ns() // 1_000_000 + round(wait_ms)
        for run_id in {item.call.run_id for item in flight.items}:
            activity = LaneActivity(
                lane=flight.lane,
                tool=flight.spec.metadata.tool,
                state="closed" if is_closed else "retrying",
                reason=_reason(failure),
                until_ms=until_ms,
                attempt=failure.attempt,
            )
            self._events.emit(run_id, activity)

    def tell(self) -> None:
        """What was gathered, now."""
        self._timer = None
        started, self._started = self._started, Counter()
        settled, self._settled = self._settled, {}
        for (run_id, tool, lane), calls in started.items():
            self._events.emit(run_id, ToolCallStarted(tool=tool, lane=lane, calls=calls))
        for (run_id, tool, lane), counts in settled.items():
            told = ToolCallSettled(
                tool=tool,
                lane=lane,
                completed=counts["completed"],
                failed=counts["failed"],
                unknown=counts["unknown"],
                duration_ms=counts["duration_ms"],
            )
            self._events.emit(run_id, told)

    def _soon(self) -> None:
        if self._timer is None:
            delay_s = self._limits.events_flush_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(delay_s, self.tell)


def _keys(flight: Flight) -> list[Key]:
    tool = flight.spec.metadata.tool
    return [(item.call.run_id, tool, flight.lane) for item in flight.items]


def _reason(failure: Failure) -> str:
    known = failure.failure_class
    return "rate_limit" if known is FailureClass.RATE_LIMITED else known.value
