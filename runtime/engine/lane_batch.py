"""A batch from its due ticket to its outcomes: seal, send, retry, split; then its reply."""

from collections.abc import Sequence
from dataclasses import replace

import structlog
from structlog.contextvars import bound_contextvars

from runtime import tracing
from runtime.engine.lane_book import LaneBook, leases_of
from runtime.engine.lane_budget import LaneBudget
from runtime.engine.lane_ended import RunStates
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight, Stage
from runtime.engine.lane_outcomes import exhausted, no_payload
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_refusal import Refusal, not_charged
from runtime.engine.lane_reply import Reply
from runtime.engine.lane_seal import Seal
from runtime.errors import ExecuteFailedError, PersistenceLostError, ServiceUnreachableError
from runtime.model.call import Call
from runtime.model.failure import Failure
from runtime.model.outcome import ItemOutcome, all_unknown
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.tool_output import with_envelope
from runtime.policy import retrying
from runtime.policy.batching import SINGLE
from runtime.policy.fixtures import response_delay_ms
from runtime.policy.identity import FIXTURE

log = structlog.get_logger()


class BatchFlow:
    """Sends batches. Between the seal and the request nothing is awaited but a test's fault point."""

    def __init__(
        self, parts: LaneParts, book: LaneBook, reply: Reply, fence: Fence, states: RunStates
    ) -> None:
        self._parts = parts
        self._states = states
        self._book = book
        self._reply = reply
        self._fence = fence
        self._seal = Seal(parts, book, fence)
        self._budget = LaneBudget(parts, book)
        self._refusal = Refusal(parts, book, fence, reply.events, self.fly)

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
        if flight.exhausted is None:
            await flight.slot.succeeded()
        else:
            await self._refusal.close_scope(flight, flight.exhausted)
        await self._parts.fault("lane.after_answer")
        await self._reply.settle(flight)

    # ---- send

    async def _send(self, flight: Flight) -> Sequence[ItemOutcome] | None:
        """One outcome per item; None if the batch went on as halves, was asked for anew, or was lost to another."""
        parts = self._parts
        calls = flight.calls
        try:
            request = flight.spec.request(calls)
        except Exception as error:  # of a strategy that a deployment registered
            log.exception("no payload for a batch", action="lane.payload", tool=calls[0].tool)
            not_charged(flight.items)
            return no_payload(flight, error)
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
            action = await self._refusal.decide(flight, failure, failures, members=len(calls))
            if not isinstance(action, retrying.Retry):
                return await self._refusal.give_up(flight, failure, action)
            refusal = None if action.same_invocation else await self._budget.take_retry(flight)
            if refusal is not None:
                return await self._refusal.without_retry(flight, failure, refusal)
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
        own = flight.own(outcomes)
        flight.exhausted = exhausted(flight, own, reply, self._parts.limits)
        return own

    async def _wait_for_retry(self, flight: Flight, failure: Failure, action: retrying.Retry) -> bool:
        """A new ticket, and the seal again: the leases must still be ours."""
        if not retrying.may_repeat_only_if_safe(failure.failure_class):
            flight.stage = Stage.SEALED  # as good as not sent
        if failure.not_charged:
            not_charged(flight.items)
        flight.slot.free()
        if action.after_ms > self._parts.limits.hold_ms:
            await self._refusal.far(flight.items, action.after_ms)
        await self._parts.clock.sleep(action.after_ms)
        await flight.slot.take(len(flight.items), lambda far_ms: self._refusal.far(flight.items, far_ms))
        if failure.not_charged and not flight.is_verbatim and await self._is_unwanted(flight):
            await self._refusal.drop(flight)
            return False
        return await self._seal.still_holds(flight)

    async def _is_unwanted(self, flight: Flight) -> bool:
        """Whether every run that waits for the batch has ended; if nobody can tell it goes on."""
        try:
            return len(await self._states.without_a_live_run(flight.items)) == len(flight.items)
        except ServiceUnreachableError as error:
            log.warning("ended runs unknown", action="lane.ended", error=str(error))
            return False

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
