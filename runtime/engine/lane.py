"""The lane engine of one process: posts in, paced batches out, outcomes committed, answers pushed."""

import asyncio
from collections.abc import Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from runtime.engine.ending_tasks import end_tasks
from runtime.engine.lane_admission import Admission
from runtime.engine.lane_batch import BatchFlow
from runtime.engine.lane_book import Accepted, Item, LaneBook, leases_of
from runtime.engine.lane_commit import Committer
from runtime.engine.lane_ended import EndedCalls, RunStates
from runtime.engine.lane_fence import Fence
from runtime.engine.lane_flight import Flight, Slot, rate_scope
from runtime.engine.lane_later import FarAway, LaterCalls
from runtime.engine.lane_line import Line
from runtime.engine.lane_parts import LaneParts
from runtime.engine.lane_reply import Reply
from runtime.engine.lane_spec import BatchSpec, SpecKey, spec_key
from runtime.engine.lane_takeover import Takeover
from runtime.errors import ServiceUnreachableError
from runtime.model.call import Post
from runtime.model.lease import BatchRecord, Lease
from runtime.policy.coalescing import BucketKey, Coalescer
from runtime.ports import Timer

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSnapshot:
    """What a lane process does now, and has done. `calls / capacity` is how full its batches were."""

    queued: int
    held: int
    on_the_wire: int
    batches: int
    calls: int
    capacity: int
    uncommitted: int
    prevented: int
    commits_work: bool


class LaneEngine:
    """Belongs to one session and one loop; made inside the loop. A new session needs a new engine."""

    def __init__(self, parts: LaneParts) -> None:
        self._parts = parts
        self._book = LaneBook(parts)
        self._committer = Committer(parts)
        self._fence = Fence(parts, self._book)
        self._reply = Reply(parts, self._book, self._committer, self._fence)
        self._later = LaterCalls(parts, self._book)
        states = RunStates(parts)
        self._flow = BatchFlow(parts, self._book, self._reply, self._fence, states)
        self._takeover = Takeover(parts, self._book, self._flow, self._fence, self._spawn)
        self._admission = Admission(
            parts,
            self._book,
            self._committer,
            self._fence,
            states,
            enqueue=self._enqueue,
            adopt=self._takeover.start,
        )
        self._coalescer: Coalescer[Item] = Coalescer(parts.limits.coalesce_window_ms)
        self._specs: dict[BucketKey, BatchSpec] = {}
        self._line = Line(parts, self._coalescer, self._committer, self._fence)
        self._ended = EndedCalls(parts, self._book, self._coalescer, self._spawn_in_line)
        self._tasks: set[asyncio.Task[None]] = set()
        self._in_line: set[asyncio.Task[None]] = set()  # tasks that wait for a ticket
        self._admitting = 0  # posts between their arrival and the queue
        self._all_admitted = asyncio.Event()
        self._all_admitted.set()
        self._timer: Timer | None = None

    async def accept(self, post: Post) -> Accepted:
        """Admit a post: returns when each call is answered, queued or left; the result tells when all are done."""
        accepted = Accepted(post.post_id, len(post.calls))
        self._admitting += 1
        self._all_admitted.clear()
        try:
            await self._admission.admit(post, accepted)
        finally:
            self._admitting -= 1
            if not self._admitting:
                self._all_admitted.set()
        return accepted

    def held(self) -> tuple[list[Lease], list[BatchRecord]]:
        """What a renewal must put back if Redis lost it."""
        return self._book.held()

    async def renew(self) -> None:
        """Heartbeat of this session's leases; puts back what Redis lost of them."""
        await self._book.renew()

    async def sweep(self) -> None:
        """Look for batches of dead sessions, calls of ended runs, and what a store's absence left undone."""
        try:
            await self._reply.store_again()
            if self._flow.is_stopped:
                return
            await self._book.release_again()
            await self._book.free_again()
            await self._ended.give_back()
            if not self._admission.is_closed:
                await self._takeover.sweep()
        except ServiceUnreachableError as error:
            log.warning("lane sweep put off", action="lane.sweep", error=str(error))

    async def drain(self, grace_s: float) -> None:
        """Nothing new; queued calls are given back; what is on the wire is finished within the grace, or left."""
        ends_s = asyncio.get_running_loop().time() + grace_s
        self._admission.is_closed = True
        self._stop_lines()
        # A post between its claim and its queue gives itself back; going before that would leave its leases behind.
        with suppress(TimeoutError):
            async with asyncio.timeout_at(ends_s):
                await self._all_admitted.wait()
        await self._book.give_back(self._coalescer.remove(lambda _item: True))
        if self._tasks:
            left_s = max(0.0, ends_s - asyncio.get_running_loop().time())
            _done, late = await asyncio.wait(self._tasks, timeout=left_s)
            if late:
                log.warning("batches left to takeover", action="lane.drain", batches=len(late))
            await end_tasks(late, self._parts.limits)

    def session_lost(self) -> None:
        """This session's leases may be others' now: send nothing more; what is on the wire is committed, fenced."""
        self._admission.is_closed = True
        self._flow.stop()
        self._stop_lines()
        self._book.leave(self._coalescer.remove(lambda _item: True))

    def snapshot(self) -> LaneSnapshot:
        return LaneSnapshot(
            queued=len(self._coalescer),
            held=len(self._book.items),
            on_the_wire=len(self._book.batches),
            batches=self._reply.batches,
            calls=self._reply.calls,
            capacity=self._reply.capacity,
            uncommitted=sum(len(receipts) for _flight, receipts in self._reply.uncommitted),
            prevented=self._book.prevented,
            commits_work=self._committer.is_open,
        )

    # ---- from the queue to the wire

    def _enqueue(self, items: Sequence[Item], lane: str, specs: dict[SpecKey, BatchSpec]) -> None:
        groups: dict[tuple[str | None, ...], list[Item]] = {}
        for item in items:
            item.is_queued = True
            call = item.call
            spec = specs[spec_key(call)]
            group = (call.org_id, call.tool, call.integration_mode, call.auth_scope, spec.bucket_of(call))
            groups.setdefault(group, []).append(item)
        now_ms = self._parts.clock.now_ms()
        for together in groups.values():
            first = together[0].call
            spec = specs[spec_key(first)]
            bucket = spec.bucket(first, lane, self._parts.origin)
            self._specs[bucket] = spec
            pairs = [(item.call.run_id, item) for item in together]
            self._coalescer.add(bucket, spec.strategy.max_batch_size, pairs, now_ms)
        self._pump()

    def _pump(self) -> None:
        """Put ready buckets in line for tickets; wake up when the next window ends."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_ms = self._parts.clock.now_ms()
        for bucket in self._coalescer.tickets_wanted(now_ms):
            self._spawn_in_line(self._carry(bucket, self._specs[bucket]))
        self._ended.watch()
        ends_ms = self._coalescer.next_window_end()
        if ends_ms is not None:
            self._timer = self._parts.clock.call_later(max(0.0, ends_ms - now_ms), self._pump)

    async def _carry(self, bucket: BucketKey, spec: BatchSpec) -> None:
        """One ticket: wait for it, take what the bucket holds then and the tokens allow, send it."""
        scope = rate_scope(bucket.lane, bucket.org_id, spec, bucket.integration_mode)
        slot = Slot(self._parts, scope, bucket)
        try:
            granted = await self._granted(slot, bucket, spec)
            spec = self._specs.get(bucket, spec)
            if isinstance(granted, FarAway):
                far = self._coalescer.take_newest(bucket, self._line.unpromised(bucket, spec))
                await self._later.put_off(slot, far, granted.due_ms)
                self._pump()
                return
            items = self._coalescer.take(bucket, granted)
            if granted is None:
                await self._book.give_back(items)
                return
            items = await self._book.refuse_stopped(items)
            self._pump()
            if items:
                await self._flow.fly(Flight(slot=slot, lane=bucket.lane, spec=spec, items=items))
        finally:
            slot.free()
            if not self._coalescer.waiting(bucket):
                self._specs.pop(bucket, None)

    async def _granted(self, slot: Slot, bucket: BucketKey, spec: BatchSpec) -> int | FarAway | None:
        """What the line grants; an error of ours leaves the ticket's calls to their callers, which post them again."""
        try:
            return await self._line.granted(slot, bucket, spec)
        except Exception:
            items = self._coalescer.take(bucket)
            leases = leases_of(items)
            self._book.leave(items)
            await self._book.release(leases)
            raise
        except BaseException:
            self._coalescer.give_back_ticket(bucket)
            raise
        finally:
            self._leave_line()

    # ---- tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._finished)
        return task

    def _spawn_in_line(self, work: Coroutine[Any, Any, None]) -> None:
        self._in_line.add(self._spawn(work))

    def _finished(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        self._in_line.discard(task)
        if not task.cancelled() and task.exception() is not None:
            log.error("lane task failed", action="lane.task", exc_info=task.exception())

    def _leave_line(self) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._in_line.discard(task)

    def _stop_lines(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._ended.stop()
        for task in list(self._in_line):
            task.cancel()
