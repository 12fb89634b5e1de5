"""The caller's side of lanes: equal calls share one entry, receipts first, posts in bulk, answers or a poll."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace

import structlog

from runtime.engine.caller_entries import Entry, Waiting
from runtime.engine.caller_usage import CallerUsage
from runtime.engine.ending_tasks import end_tasks
from runtime.engine.lane_silence import LaneSilence
from runtime.engine.poster import Poster
from runtime.errors import ServiceUnreachableError
from runtime.model.call import Answer, AnswerState, Call
from runtime.model.call_options import NO_OPTIONS, CallOptions
from runtime.policy import freshness, reposting
from runtime.policy.answering import answer_of, serves
from runtime.policy.limits import Limits
from runtime.ports import Inbox, LeaseStore, ReceiptStore

log = structlog.get_logger()


class Caller:
    """Asks for calls and waits for their answers; one per process, on its loop."""

    def __init__(
        self,
        *,
        session_id: str,
        receipts: ReceiptStore,
        leases: LeaseStore,
        inbox: Inbox,
        poster: Poster,
        limits: Limits,
        lane_is_read: Callable[[str], Awaitable[bool]] | None = None,
    ) -> None:
        self._session_id = session_id
        self._receipts = receipts
        self._leases = leases
        self._inbox = inbox
        self._poster = poster
        self._limits = limits
        self._silence = LaneSilence(leases, lane_is_read, limits)
        self._entries: dict[str, Entry] = {}
        self._fresh: list[Entry] = []
        self._looking = False
        self.usage = CallerUsage()
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to read the inbox and to poll; call once, on the loop."""
        self._spawn(self._read_inbox())
        self._spawn(self._poll())

    async def stop(self) -> None:
        """Stop reading; whoever still waits is cancelled by its owner."""
        await end_tasks(self._tasks, self._limits)

    async def call(self, call: Call, lane: str, options: CallOptions = NO_OPTIONS) -> Answer:
        """The answer to `call`: COMPLETED, FAILED, UNKNOWN or TRY_LATER. Equal keys of this process share one call.

        Raises CallWaitExceededError when one of the author's waits is over.
        """
        waiter = Waiting(call=call, asked_ms=self._now_ms(), receipt_wait_ms=options.receipt_wait_ms)
        followed = call.key in self._entries
        entry = self._join(waiter, lane)
        max_wait_ms = options.max_wait_ms
        if max_wait_ms is None:
            answer = await waiter.answered
        else:
            try:
                done, _ = await asyncio.wait({waiter.answered}, timeout=max_wait_ms / 1000)
            finally:
                waiter.answered.cancel()  # its time is up, or its asker is gone; an answer stays one
            if not done:
                raise await self._silence.exceeded(
                    call, lane, f"max_wait_ms={max_wait_ms:g}", posts=entry.posts
                )
            answer = waiter.answered.result()
            if answer.state is AnswerState.TRY_LATER and self._now_ms() + (answer.until_ms or 0) >= (
                waiter.asked_ms + max_wait_ms
            ):
                raise await self._silence.exceeded(
                    call, lane, f"max_wait_ms={max_wait_ms:g}", posts=entry.posts, leased=False
                )
        if answer.cached and not followed:
            self.usage.count(call, cached=1)
        return replace(answer, followed=True) if followed else answer

    async def store_usage(self) -> None:
        """Write the counts where no row writer does: in a process that runs bodies."""
        usage = self.usage.take()
        if not usage:
            return
        try:
            await self._receipts.commit(self._session_id, (), usage)
        except ServiceUnreachableError as error:
            self.usage.give_back(usage)
            log.warning("usage not stored yet", action="caller.usage", error=str(error))

    # ---- from receipts to posts

    def _join(self, waiter: Waiting, lane: str) -> Entry:
        call = waiter.call
        entry = self._entries.get(call.key)
        if entry is None:
            entry = self._entries[call.key] = Entry(key=call.key, lane=lane)
            self._fresh.append(entry)
            self._gather()
        else:
            self.usage.count(call, followed=1)
        entry.waiters.append(waiter)
        if waiter.receipt_wait_ms is not None and entry.posts:
            entry.poll_at_ms = min(entry.poll_at_ms, waiter.asked_ms + waiter.receipt_wait_ms)
        return entry

    def _gather(self) -> None:
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_later(self._limits.call_gather_ms / 1000, self._start_look_up)

    def _start_look_up(self) -> None:
        self._spawn(self._look_up())

    async def _look_up(self) -> None:
        """Answer fresh calls from receipts; post the rest. One at a time: what arrives meanwhile goes next."""
        try:
            while self._fresh:
                fresh, self._fresh = (
                    self._fresh[: self._limits.receipt_chunk],
                    self._fresh[self._limits.receipt_chunk :],
                )
                try:
                    self._post(await self._unanswered(fresh))
                except Exception as error:  # of ours: whoever asked must learn it, no poll would
                    log.exception("calls not posted", action="caller.look_up", calls=len(fresh))
                    for entry in fresh:
                        entry.fail(error)
                        self._is_waited_for(entry)
        finally:
            self._looking = False

    async def _unanswered(self, entries: list[Entry]) -> list[Entry]:
        """Entries that stored receipts leave somebody of waiting."""
        try:
            stored = await self._receipts.read([key for entry in entries for key in entry.lookup_keys])
        except ServiceUnreachableError as error:
            log.warning("receipts not readable", action="caller.read", error=str(error))
            stored = {}
        left: list[Entry] = []
        for entry in entries:
            for receipt in [stored[key] for key in entry.lookup_keys if key in stored]:
                answer = answer_of(receipt, cached=entry.posts == 0, key=entry.key)
                self._answer(
                    entry,
                    answer,
                    lambda call, receipt=receipt: freshness.answers(
                        receipt, run_id=call.run_id, accepts=call.accepts
                    ),
                )
            if self._is_waited_for(entry):
                left.append(entry)
        return left

    def _post(self, entries: list[Entry]) -> None:
        now_ms = self._now_ms()
        for entry in entries:
            if not self._is_waited_for(entry):
                continue
            entry.posts += 1
            entry.posted_ms = now_ms
            self._poll_later(entry, now_ms)
            self._unpost(entry)
            call = entry.waiting[0].call
            entry.posted_run = call.run_id
            self._poster.add(entry.lane, call)

    def _unpost(self, entry: Entry) -> None:
        """The last post of it is over."""
        if entry.posted_run is not None:
            self._poster.done(entry.lane, entry.posted_run, entry.key)
            entry.posted_run = None

    # ---- answers

    async def _read_inbox(self) -> None:
        while True:
            try:
                await self._take(await self._inbox.pop(self._session_id, self._limits.inbox_block_s))
            except ServiceUnreachableError as error:
                log.warning("inbox not readable", action="caller.inbox", error=str(error))
                await asyncio.sleep(self._limits.inbox_block_s)
            except Exception:
                log.exception("answers dropped, the poll finds them", action="caller.inbox")
                await asyncio.sleep(self._limits.inbox_block_s)

    async def _take(self, answers: list[Answer]) -> None:
        stored: list[Entry] = []
        again: list[Entry] = []
        for answer in answers:
            entry = self._entries.get(answer.key)
            if entry is None:
                continue
            if answer.state is AnswerState.STORED:
                stored.append(entry)
            elif answer.state is AnswerState.RETURNED:
                again.append(entry)
            else:
                served = self._answer(entry, answer, lambda call, answer=answer: serves(answer, call))
                # An answer made just now ends the lane's work on the key; who is left must be posted.
                if served or not answer.cached:
                    again.append(entry)
        if stored:
            await self._unanswered(stored)
        self._post(again)

    def _answer(self, entry: Entry, answer: Answer, serves_call: Callable[[Call], bool]) -> bool:
        """Answer whom it serves; True if it served anybody."""
        served = [waiter for waiter in entry.waiting if serves_call(waiter.call)]
        for waiter in served:
            waiter.answered.set_result(answer)
        self._is_waited_for(entry)
        return bool(served)

    # ---- the poll: lost answers and lost posts cost time, never results

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._limits.poll_first_ms / 1000 / 2)
            try:
                await self._poll_once()
            except ServiceUnreachableError as error:
                log.warning("poll failed", action="caller.poll", error=str(error))
            except Exception:
                log.exception("poll broke off, it goes on", action="caller.poll")
                await asyncio.sleep(self._limits.poll_max_ms / 1000)

    async def _poll_once(self) -> None:
        now_ms = self._now_ms()
        due = [entry for entry in list(self._entries.values()) if entry.posts and entry.poll_at_ms <= now_ms]
        chunk = self._limits.receipt_chunk
        for start in range(0, len(due), chunk):
            await self._poll_chunk(due[start : start + chunk], now_ms)

    async def _poll_chunk(self, due: list[Entry], now_ms: float) -> None:
        left = await self._unanswered([entry for entry in due if self._is_waited_for(entry)])
        if not left:
            return
        leased = await self._leases.alive([entry.key for entry in left])
        again: list[Entry] = []
        silent: Counter[str] = Counter()
        for entry in left:
            entry.polls += 1
            if entry.key in leased:
                entry.leased_ms = now_ms
            elif await self._silence.end_waits(entry, now_ms):
                silent[entry.lane] += 1
            self._poll_later(entry, now_ms)
            if entry.posted_run and self._poster.holds(entry.lane, entry.posted_run, entry.key):
                continue
            verdict = reposting.decide(
                posts=entry.posts,
                posted_ms=entry.posted_ms,
                leased=entry.key in leased,
                now_ms=now_ms,
                limits=self._limits,
            )
            if verdict is reposting.Waiting.POST_AGAIN:
                again.append(entry)
        await self._silence.tell(silent, now_ms)
        if again:
            log.warning("posting calls again", action="caller.repost", calls=len(again), lane=again[0].lane)
            self._post(again)

    def _poll_later(self, entry: Entry, now_ms: float) -> None:
        ends = [
            max(waiter.asked_ms, entry.leased_ms) + waiter.receipt_wait_ms
            for waiter in entry.waiting
            if waiter.receipt_wait_ms is not None
        ]
        entry.poll_at_ms = min([now_ms + reposting.poll_delay_ms(entry.polls, self._limits), *ends])

    def _is_waited_for(self, entry: Entry) -> bool:
        """Forget a key whose last waiter was answered or cancelled."""
        is_here = self._entries.get(entry.key) is entry
        entry.waiters = entry.waiting
        if is_here and not entry.waiters:
            del self._entries[entry.key]
            self._unpost(entry)
        return is_here and bool(entry.waiters)

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
