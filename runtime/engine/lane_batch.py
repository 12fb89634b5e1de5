"""A batch from its due ticket to its outcomes: seal, send, retry, split; then its reply."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace

import structlog

from runtime.engine.lane_book import Item, LaneBook
from runtime.engine.lane_flight import Flight, Slot, Stage
from runtime.engine.lane_outcomes import failed_outcomes
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_reply import Reply
from runtime.errors import ExecuteFailedError, PersistenceLostError, RunHaltedError, ServiceUnreachableError
from runtime.model.failure import Failure
from runtime.model.lease import BatchRecord
from runtime.model.outcome import ItemOutcome, all_unknown
from runtime.policy import retrying
from runtime.policy.batching import halves

log = structlog.get_logger()


class BatchFlow:
    """Sends batches. Between the seal and the request nothing is awaited but a test's fault point."""

    def __init__(self, parts: LaneParts, book: LaneBook, reply: Reply) -> None:
        self._parts = parts
        self._book = book
        self._reply = reply
        self.is_stopped = False  # a lost session: nothing further is sent

    async def fly(self, flight: Flight) -> None:
        """From a due ticket to the answers; whatever happens every item is answered, given back or left."""
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
        if not await self._seal(flight):
            return
        flight.stage = Stage.SEALED
        await self._parts.fault("lane.after_seal")
        split = await self._send(flight)
        if split is None:
            return
        flight.outcomes = split
        flight.stage = Stage.ANSWERED
        await self._parts.fault("lane.after_answer")
        await self._reply.settle(flight)

    # ---- seal

    async def _seal(self, flight: Flight) -> bool:
        """Record the batch if its leases hold; members whose lease is lost are left to others."""
        while flight.items and not self.is_stopped:
            record = flight.record or flight.spec.record(
                uuid.uuid4().hex, self._parts.session_id, flight.lane, flight.items
            )
            flight.record = self._book.batches[record.batch_id] = record
            holds = await self._holds(record)
            if all(holds):
                return True
            if flight.is_verbatim:
                await self._abandon(flight)
                return False
            self._book.batches.pop(record.batch_id, None)
            lost = [item for item, held in zip(flight.items, holds, strict=True) if not held]
            log.warning("leases lost before sending", action="lane.seal", lane=flight.lane, calls=len(lost))
            self._book.leave(lost)
            flight.items = [item for item, held in zip(flight.items, holds, strict=True) if held]
            flight.record = None
        if flight.items:
            await self._book.give_back(flight.items)
        return False

    async def _holds(self, record: BatchRecord) -> list[bool]:
        parts = self._parts
        holds = await parts.until_reachable(
            "lane.seal", lambda: parts.leases.seal(record), parts.limits.lane_wait_ms
        )
        if all(holds):
            return holds
        # Redis may have lost its data: put back what we hold, then look again.
        await parts.until_reachable(
            "lane.renew",
            lambda: parts.leases.renew(parts.session_id, *self._book.held()),
            parts.limits.lane_wait_ms,
        )
        return await parts.until_reachable(
            "lane.seal", lambda: parts.leases.seal(record), parts.limits.lane_wait_ms
        )

    # ---- send

    async def _send(self, flight: Flight) -> Sequence[ItemOutcome] | None:
        """One outcome per item; None if the batch went on as halves or was lost to another."""
        parts, limits = self._parts, self._parts.limits
        request = flight.spec.request([item.call for item in flight.items])
        started_ms = parts.clock.now_ms()
        attempt = 1
        while True:
            try:
                flight.stage = Stage.SENT
                reply = await parts.requests.send(request)
            except ExecuteFailedError as error:
                failure = error.failure
            else:
                split = flight.spec.strategy.split(reply.result, [item.call.input for item in flight.items])
                flight.credits = reply.credits
                if split.strangers or split.doubled:
                    log.warning(
                        "reply doesn't match its batch",
                        action="lane.match",
                        operation=request.operation,
                        strangers=len(split.strangers),
                        doubled=len(split.doubled),
                    )
                return split.outcomes
            action = retrying.decide(
                failure,
                attempt=attempt,
                elapsed_ms=parts.clock.now_ms() - started_ms,
                members=len(flight.items),
                limits=limits,
                transient_http_retry_safe=flight.spec.metadata.transient_http_retry_safe,
            )
            self._log_failure(flight, failure, action, attempt)
            if not isinstance(action, retrying.Retry):
                return await self._give_up(flight, failure, action)
            flight.stage = Stage.SEALED  # a safe retry: as good as not sent
            if not await self._wait_for_retry(flight, action):
                return None
            if not action.same_invocation:
                request = replace(request, attempt=request.attempt + 1)
            attempt += 1

    async def _wait_for_retry(self, flight: Flight, action: retrying.Retry) -> bool:
        """A new ticket, and the seal again: the leases must still be ours."""
        flight.slot.free()
        await self._parts.clock.sleep(action.after_ms)
        await flight.slot.take(len(flight.items))
        record = flight.record
        if record is not None and not self.is_stopped and all(await self._holds(record)):
            return True
        await self._abandon(flight)
        return False

    async def _abandon(self, flight: Flight) -> None:
        """Some leases went to others: this batch can't be sent as it is; what we still hold is free for its askers."""
        log.warning("batch lost", action="lane.abandon", lane=flight.lane, calls=len(flight.items))
        leases = [item.lease for item in flight.items]
        self._book.leave(flight.items)
        if not self.is_stopped:
            await self._book.release(leases, flight.record.batch_id if flight.record else None)

    async def _give_up(
        self, flight: Flight, failure: Failure, action: retrying.Action
    ) -> Sequence[ItemOutcome] | None:
        if isinstance(action, retrying.Bisect):
            await self._bisect(flight)
            return None
        if isinstance(action, retrying.Unknown):
            return all_unknown(len(flight.items), failure.describe()).outcomes
        if isinstance(action, retrying.HaltRun):
            return await self._halt(flight, failure)
        terminal = isinstance(action, retrying.FailItem) and action.terminal
        return failed_outcomes(failure, len(flight.items), terminal=terminal)

    async def _halt(self, flight: Flight, failure: Failure) -> Sequence[ItemOutcome]:
        """Credits are used up: these runs pay for nothing more; what already waits is refused at its turn."""
        error = {
            "code": RunHaltedError.code,
            "message": failure.describe(),
            "retryable": False,
            "details": failure.details(),
        }
        self._book.stop_runs({w.run_id for item in flight.items for w in item.waiters}, error)
        return failed_outcomes(failure, len(flight.items), terminal=False, code=RunHaltedError.code)

    async def _bisect(self, flight: Flight) -> None:
        """Halves are new batches, each with its own ticket. The refused record goes first: nothing was charged."""
        if flight.record is not None:
            await self._book.release([], flight.record.batch_id)
        flight.slot.free()
        await asyncio.gather(*(self._fly_half(flight, half) for half in halves(flight.items)))

    async def _fly_half(self, whole: Flight, items: Sequence[Item]) -> None:
        slot = Slot(self._parts, whole.slot.lane, whole.slot.scope)
        try:
            await slot.take(len(items))
            await self.fly(Flight(slot=slot, lane=whole.lane, spec=whole.spec, items=list(items)))
        finally:
            slot.free()

    # ---- when it breaks

    async def _rescue(self, flight: Flight) -> None:
        """An error of ours: what was not sent is given back; what may have been paid ends as it is known."""
        mine = [item for item in flight.items if self._book.items.get(item.call.key) is item]
        batch_id = flight.record.batch_id if flight.record else None
        if flight.stage < Stage.SENT:
            await self._book.give_back(mine)
            await self._book.release([], batch_id)
            return
        if not mine or flight.stage is Stage.COMMITTED:
            await self._book.release([item.lease for item in mine], batch_id)
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

    def _log_failure(self, flight: Flight, failure: Failure, action: retrying.Action, attempt: int) -> None:
        log.warning(
            "request failed",
            action="lane.send",
            lane=flight.lane,
            operation=failure.operation,
            failure=failure.failure_class.value,
            status=failure.status,
            calls=len(flight.items),
            attempt=attempt,
            then=type(action).__name__,
        )
