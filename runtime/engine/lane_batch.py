"""A batch from its due ticket to its outcomes: seal, send, retry, split; then its reply."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import structlog
from structlog.contextvars import bound_contextvars

from runtime import tracing
from runtime.engine.lane_book import Item, LaneBook, leases_of
from runtime.engine.lane_budget import LaneBudget
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight, Stage
from runtime.engine.lane_outcomes import failed_outcomes
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_reply import Reply
from runtime.engine.lane_seal import Seal
from runtime.errors import ExecuteFailedError, PersistenceLostError, RunHaltedError, ServiceUnreachableError
from runtime.model.budget import BudgetRefusal
from runtime.model.call import Call
from runtime.model.failure import Failure, FailureClass
from runtime.model.outcome import ItemOutcome, all_unknown
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.tool_output import with_envelope
from runtime.policy import retrying
from runtime.policy.batching import SINGLE, halves
from runtime.policy.fixtures import response_delay_ms
from runtime.policy.identity import FIXTURE

log = structlog.get_logger()

CLOSING = (FailureClass.RATE_LIMITED, FailureClass.PROVIDER_EXHAUSTED)
RETRIES_EXCEEDED = "retries_exceeded"


class BatchFlow:
    """Sends batches. Between the seal and the request nothing is awaited but a test's fault point."""

    def __init__(self, parts: LaneParts, book: LaneBook, reply: Reply, fence: Fence) -> None:
        self._parts = parts
        self._book = book
        self._reply = reply
        self._fence = fence
        self._seal = Seal(parts, book, fence)
        self._budget = LaneBudget(parts, book)

    @property
    def is_stopped(self) -> bool:
        return self._seal.is_stopped

    def stop(self) -> None:
        """The session is lost: nothing further is sent."""
        self._seal.is_stopped = True

    async def fly(self, flight: Flight) -> None:
        """From a due ticket to the answers; whatever happens every item is answered, given back or left."""
        with bound_contextvars(lane=flight.lane):
            await self._fly_told(flight)

    async def _fly_told(self, flight: Flight) -> None:
        try:
            await self._fly(flight)
        except PersistenceLostError as error:
            await self._reply.latch(flight, error)
        except ServiceUnreachableError as error:
            log.warning(
                "batch given up",
                action="lane.batch",
                lane=flight.lane,
                stage=flight.stage.name,
                error=str(error),
            )
            await self._rescue(flight)
        except Exception:
            log.exception("batch broke off", action="lane.batch", lane=flight.lane, stage=flight.stage.name)
            await self._rescue(flight)
        finally:
            flight.slot.free()

    async def _fly(self, flight: Flight) -> None:
        if flight.stage is Stage.ANSWERED:
            await self._reply.settle(flight)
            return
        if not await self._seal.seal(flight):
            return
        flight.stage = Stage.SEALED
        await self._parts.fault("lane.after_seal")
        split = await self._send(flight)
        if split is None:
            return
        flight.outcomes = split
        flight.stage = Stage.ANSWERED
        await flight.slot.succeeded()
        await self._parts.fault("lane.after_answer")
        await self._reply.settle(flight)

    # ---- send

    async def _send(self, flight: Flight) -> Sequence[ItemOutcome] | None:
        """One outcome per item; None if the batch went on as halves, was asked for anew, or was lost to another."""
        parts = self._parts
        calls = flight.calls
        request = flight.spec.request(calls)
        failures = retrying.Failures()
        while True:
            _leaves(flight)
            flight.sent_ms = parts.clock.now_ms()
            self._reply.events.sent(flight)
            try:
                with tracing.shared_span(
                    "playlane.batch", (call.run_id for call in calls), _told(flight, calls)
                ):
                    reply = await parts.requests.send(request)
            except ExecuteFailedError as error:
                failure = replace(error.failure, tool=flight.spec.metadata.tool, attempt=flight.sends)
            else:
                await self._imitate_slowness(request)
                return self._split(flight, reply, calls)
            failures = failures.with_one(failure.failure_class, parts.clock.now_ms())
            action = await self._decide(flight, failure, failures, members=len(calls))
            if not isinstance(action, retrying.Retry):
                return await self._give_up(flight, failure, action)
            refusal = await self._budget.take_retry(flight)
            if refusal is not None:
                return await self._without_retry(flight, failure, refusal)
            if not await self._wait_for_retry(flight, failure, action):
                return None
            if not action.same_invocation:
                request = replace(request, attempt=request.attempt + 1)

    async def _imitate_slowness(self, request: PhysicalRequest) -> None:
        if request.integration_mode == FIXTURE:
            delay_ms = response_delay_ms(request.idempotency_key, self._parts.limits)
            if delay_ms:
                await self._parts.clock.sleep(delay_ms)

    def _split(self, flight: Flight, reply: PhysicalReply, calls: Sequence[Call]) -> Sequence[ItemOutcome]:
        split = flight.spec.strategy.split(reply.result, [call.input for call in calls])
        flight.credits = reply.credits
        operation = flight.spec.strategy.operation
        if split.strangers or split.doubled:
            log.warning(
                "reply doesn't match its batch",
                action="lane.match",
                operation=operation,
                strangers=len(split.strangers),
                doubled=len(split.doubled),
            )
        if flight.spec.is_fenced and not reply.fence_attested:
            log.warning("fenced tool answered without its fence", action="lane.fence", operation=operation)
        outcomes = with_envelope(
            split.outcomes,
            reply.envelope,
            is_single=flight.spec.strategy.name == SINGLE,
            max_meta_bytes=self._parts.limits.result_meta_bytes,
        )
        return flight.own(outcomes)

    async def _decide(
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
            self._reply.events.held_up(flight, failure, wait_ms, is_closed=kind in CLOSING)
        return action

    async def _is_replay_safe(self, flight: Flight, failure: Failure) -> bool:
        if flight.items[0].call.integration_mode == FIXTURE:
            return True
        return flight.spec.is_fenced and (failure.fence_attested or await self._fence.is_attested_now())

    async def _wait_for_retry(self, flight: Flight, failure: Failure, action: retrying.Retry) -> bool:
        """A new ticket, and the seal again: the leases must still be ours."""
        if not retrying.may_repeat_only_if_safe(failure.failure_class):
            flight.stage = Stage.SEALED  # as good as not sent
        if failure.not_charged:
            _not_charged(flight.items)
        flight.slot.free()
        await self._parts.clock.sleep(action.after_ms)
        await flight.slot.take(len(flight.items))
        return await self._seal.still_holds(flight)

    # ---- when it failed

    async def _give_up(
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

    async def _without_retry(
        self, flight: Flight, failure: Failure, refusal: BudgetRefusal
    ) -> Sequence[ItemOutcome] | None:
        """A run of the batch has no retry left: its calls fail, those of others are asked for anew if that is safe."""
        if failure.not_charged:
            others = [item for item in flight.items if refusal.account not in item.call.accounts]
            flight.items = [item for item in flight.items if refusal.account in item.call.accounts]
            _not_charged(others)
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
        return await self._give_up(flight, failure, action)

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
        if flight.spec.is_fenced:
            for item in flight.items:
                item.is_marked = True  # refused before anything happened
        _not_charged(flight.items)
        error = {
            "code": failure.failure_class.value,
            "message": failure.describe(),
            "retryable": True,
            "details": failure.details(),
        }
        await self._book.fail(flight.items, error)
        await self._book.release([], flight.batch_id)

    async def _bisect(self, flight: Flight) -> None:
        """Halves are new batches, each with its own ticket. The refused record goes first: nothing was charged."""
        _not_charged(flight.items)
        await self._book.release([], flight.batch_id)
        flight.slot.free()
        parts = halves(flight.items) if len(flight.items) > 1 else (flight.items,)
        await asyncio.gather(*(self._fly_half(flight, part) for part in parts))

    async def _fly_half(self, whole: Flight, items: Sequence[Item]) -> None:
        slot = whole.slot.another()
        try:
            await slot.take(len(items))
            await self.fly(Flight(slot=slot, lane=whole.lane, spec=whole.spec, items=list(items)))
        finally:
            slot.free()

    # ---- when it breaks

    async def _rescue(self, flight: Flight) -> None:
        """An error of ours: what was not sent is given back; what may have been paid ends as it is known."""
        mine = [item for item in flight.items if self._book.items.get(item.call.key) is item]
        batch_id = flight.batch_id
        if flight.stage < Stage.SENT:
            await self._book.give_back(mine)
            await self._book.release([], batch_id)
            return
        if not mine or flight.stage is Stage.COMMITTED:
            await self._book.release(leases_of(mine), batch_id)
            self._book.leave(mine)
            return
        if flight.stage < Stage.ANSWERED:
            flight.items = mine
            flight.outcomes = all_unknown(
                len(mine), "the lane broke off after sending it; see its log"
            ).outcomes
            flight.stage = Stage.ANSWERED
        try:
            await self._reply.settle(flight)
        except PersistenceLostError as error:
            await self._reply.latch(flight, error)

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


def _told(flight: Flight, calls: Sequence[Call]) -> tracing.Attributes:
    """What the span of one physical request says."""
    return {
        "playlane.lane": flight.lane,
        "playlane.operation": flight.spec.strategy.operation,
        "playlane.batch_id": flight.batch_id or "",
        "playlane.items": len(calls),
        "playlane.send": flight.sends,
    }


def _leaves(flight: Flight) -> None:
    """The request is on its way: marks stay until an outcome is known, and what it may cost is held."""
    flight.sends += 1
    flight.stage = Stage.SENT
    for item in flight.items:
        item.is_marked = item.is_reserved = False
    flight.slot.sent()


def _not_charged(items: Sequence[Item]) -> None:
    """The reply proves it: what they hold of budgets may be given back with them."""
    for item in items:
        item.is_reserved = bool(item.call.accounts)
