"""What becomes of a batch whose request failed: sent again, halved, asked for anew, or ended as it is known."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_events import LaneEvents
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight
from runtime.engine.lane_outcomes import failed_outcomes
from runtime.engine.lane_parts import LaneParts
from runtime.errors import RunHaltedError
from runtime.model.budget import BudgetRefusal
from runtime.model.failure import Failure, FailureClass
from runtime.model.outcome import ItemOutcome, all_unknown
from runtime.policy import retrying
from runtime.policy.batching import halves
from runtime.policy.identity import FIXTURE

log = structlog.get_logger()

CLOSING = (FailureClass.RATE_LIMITED, FailureClass.PROVIDER_EXHAUSTED)
RETRIES_EXCEEDED = "retries_exceeded"


class Refusal:
    """Acts on failures of requests. `fly` carries halves, which are batches of their own."""

    def __init__(
        self,
        parts: LaneParts,
        book: LaneBook,
        fence: Fence,
        events: LaneEvents,
        fly: Callable[[Flight], Awaitable[None]],
    ) -> None:
        self._parts = parts
        self._book = book
        self._fence = fence
        self._events = events
        self._fly = fly

    async def far(self, items: Sequence[Item], far_ms: float) -> None:
        """The batch keeps its calls and goes on later; nobody sits here till then."""
        log.info("callers sent away", action="lane.far", calls=len(items), far_ms=round(far_ms))
        await self._book.tell_later(items, far_ms)

    async def close_scope(self, flight: Flight, failure: Failure) -> None:
        """Items of a good reply found the quota used up: nobody else asks for it till then."""
        await flight.slot.limited(failure.retry_after_ms)
        log.warning(
            "quota used up",
            action="lane.send",
            lane=flight.lane,
            operation=failure.operation,
            retry_at=failure.retry_at,
            wait_ms=failure.retry_after_ms,
        )
        self._events.held_up(flight, failure, failure.retry_after_ms or 0.0, is_closed=True)

    async def decide(
        self, flight: Flight, failure: Failure, failures: retrying.Failures, *, members: int
    ) -> retrying.Action:
        kind = failure.failure_class
        if kind in CLOSING:
            await flight.slot.limited(failure.retry_after_ms)
        is_safe = retrying.may_repeat_only_if_safe(kind) and await self._is_replay_safe(flight, failure)
        action = retrying.decide(
            failure,
            attempt=failures.count(kind),
            elapsed_ms=failures.elapsed_ms(kind, self._parts.clock.now_ms()),
            members=members,
            limits=self._parts.limits,
            transient_http_retry_safe=flight.spec.metadata.transient_http_retry_safe,
            replay_safe=is_safe,
        )
        self._log_failure(flight, failure, action)
        wait_ms = action.after_ms if isinstance(action, retrying.Retry) else failure.retry_after_ms
        if wait_ms is not None:
            self._events.held_up(flight, failure, wait_ms, is_closed=kind in CLOSING)
        return action

    async def _is_replay_safe(self, flight: Flight, failure: Failure) -> bool:
        if flight.items[0].call.integration_mode == FIXTURE:
            return True
        return flight.spec.is_fenced and (failure.fence_attested or await self._fence.is_attested_now())

    async def give_up(
        self, flight: Flight, failure: Failure, action: retrying.End
    ) -> Sequence[ItemOutcome] | None:
        match action:
            case retrying.Bisect():
                await self._bisect(flight)
                return None
            case retrying.Rekey():
                await self._ask_anew(flight, failure)
                return None
            case retrying.Unknown():
                return all_unknown(len(flight.items), failure.describe()).outcomes
            case retrying.HaltRun():
                return self._halt(flight, failure)
            case retrying.FailItem(terminal=terminal):
                return failed_outcomes(failure, len(flight.items), terminal=terminal)

    async def without_retry(
        self, flight: Flight, failure: Failure, refusal: BudgetRefusal
    ) -> Sequence[ItemOutcome] | None:
        """A run of the batch has no retry left: its calls fail, those of others are asked for anew if that is safe."""
        if failure.not_charged:
            others = [item for item in flight.items if refusal.account not in item.call.accounts]
            flight.items = [item for item in flight.items if refusal.account in item.call.accounts]
            not_charged(others)
            await self._book.give_back(others)
        failure = replace(
            failure,
            code=RETRIES_EXCEEDED,
            message=f"{failure.message}; not sent again, as {refusal.describe()}",
        )
        action = retrying.decide(
            failure,
            attempt=1,
            elapsed_ms=0.0,
            members=len(flight.items),
            limits=self._parts.limits,
            retries_left=False,
        )
        assert not isinstance(action, retrying.Retry)
        return await self.give_up(flight, failure, action)

    def _halt(self, flight: Flight, failure: Failure) -> Sequence[ItemOutcome]:
        """Credits are used up: these runs pay for nothing more; what already waits is refused at its turn."""
        error = {
            "code": RunHaltedError.code,
            "message": failure.describe(),
            "retryable": False,
            "details": failure.details(),
        }
        self._book.stop_runs({w.run_id for item in flight.items for w in item.waiters}, error)
        return failed_outcomes(failure, len(flight.items), terminal=False, code=RunHaltedError.code)

    async def _ask_anew(self, flight: Flight, failure: Failure) -> None:
        """The auth scope is another: nothing happened under these keys, so nothing is stored under them."""
        _never_happened(flight)
        error = {
            "code": failure.failure_class.value,
            "message": failure.describe(),
            "retryable": True,
            "details": failure.details(),
        }
        await self._book.fail(flight.items, error)
        await self._book.release([], flight.batch_id)

    async def drop(self, flight: Flight) -> None:
        """Nothing was charged and nobody waits for it any more: it isn't sent again."""
        log.info("batch not repeated", action="lane.ended", lane=flight.lane, calls=len(flight.items))
        _never_happened(flight)
        await self._book.give_back(flight.items)
        await self._book.release([], flight.batch_id)

    async def _bisect(self, flight: Flight) -> None:
        """Halves are new batches, each with its own ticket. The refused record goes first: nothing was charged."""
        not_charged(flight.items)
        await self._book.release([], flight.batch_id)
        flight.slot.free()
        parts = halves(flight.items) if len(flight.items) > 1 else (flight.items,)
        await asyncio.gather(*(self._fly_half(flight, part) for part in parts))

    async def _fly_half(self, whole: Flight, items: Sequence[Item]) -> None:
        slot = whole.slot.another()
        try:
            await slot.take(len(items), lambda far_ms: self.far(items, far_ms))
            await self._fly(Flight(slot=slot, lane=whole.lane, spec=whole.spec, items=list(items)))
        finally:
            slot.free()

    def _log_failure(self, flight: Flight, failure: Failure, action: retrying.Action) -> None:
        log.warning(
            "request failed",
            action="lane.send",
            lane=flight.lane,
            operation=failure.operation,
            failure=failure.failure_class.value,
            status=failure.status,
            calls=len(flight.items),
            attempt=failure.attempt,
            request_id=failure.request_id,
            then=type(action).__name__,
        )


def not_charged(items: Sequence[Item]) -> None:
    """The reply proves it: what they hold of budgets may be given back with them."""
    for item in items:
        item.is_reserved = bool(item.call.accounts)


def _never_happened(flight: Flight) -> None:
    """Refused before anything happened: marks and budget are given back with the calls."""
    if flight.spec.is_fenced:
        for item in flight.items:
            item.is_marked = True
    not_charged(flight.items)
