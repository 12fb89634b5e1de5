"""The caller's side of lanes: equal calls share one entry, receipts first, posts in bulk, answers or a poll."""

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field

import structlog

from runtime.engine.poster import Poster
from runtime.errors import ServiceUnreachableError
from runtime.model.call import Answer, AnswerState, Call, Usage
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy import reposting
from runtime.policy.limits import Limits
from runtime.ports import Inbox, LeaseStore, ReceiptStore

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Entry:
    """One key that this process waits for."""

    call: Call
    lane: str
    waiters: list[asyncio.Future[Answer]] = field(default_factory=list)
    posts: int = 0
    posted_ms: float = 0.0
    polls: int = 0
    poll_at_ms: float = 0.0


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
    ) -> None:
        self._session_id = session_id
        self._receipts = receipts
        self._leases = leases
        self._inbox = inbox
        self._poster = poster
        self._limits = limits
        self._entries: dict[str, _Entry] = {}
        self._fresh: list[_Entry] = []
        self._looking = False
        self._usage: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        """Begin to read the inbox and to poll; call once, on the loop."""
        self._spawn(self._read_inbox())
        self._spawn(self._poll())

    async def stop(self) -> None:
        """Stop reading; whoever still waits is cancelled by its owner."""
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def call(self, call: Call, lane: str) -> Answer:
        """The answer to `call`: COMPLETED, FAILED or UNKNOWN. Equal keys of this process share one call."""
        waiter: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        entry = self._entries.get(call.key)
        if entry is None:
            entry = self._entries[call.key] = _Entry(call=call, lane=lane)
            self._fresh.append(entry)
            self._gather()
        else:
            self._usage[call.run_id, call.tool][1] += 1
        entry.waiters.append(waiter)
        answer = await waiter
        if answer.cached:
            self._usage[call.run_id, call.tool][0] += 1
        return answer

    def take_usage(self) -> tuple[Usage, ...]:
        """Counts since the last take, to be written with the rows that they belong to."""
        taken, self._usage = self._usage, defaultdict(lambda: [0, 0])
        return tuple(
            Usage(run_id=run_id, tool=tool, cached=cached, followed=followed)
            for (run_id, tool), (cached, followed) in taken.items()
        )

    def give_back_usage(self, usage: Iterable[Usage]) -> None:
        """The write that carried `usage` failed: count it again."""
        for part in usage:
            counts = self._usage[part.run_id, part.tool]
            counts[0] += part.cached
            counts[1] += part.followed

    async def store_usage(self) -> None:
        """Write the counts where no row writer does: in a process that runs bodies."""
        usage = self.take_usage()
        if not usage:
            return
        try:
            await self._receipts.commit(self._session_id, (), usage)
        except ServiceUnreachableError as error:
            self.give_back_usage(usage)
            log.warning("usage not stored yet", action="caller.usage", error=str(error))

    # ---- from receipts to posts

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
                self._post(await self._unanswered(fresh))
        finally:
            self._looking = False

    async def _unanswered(self, entries: list[_Entry]) -> list[_Entry]:
        try:
            stored = await self._receipts.read([entry.call.key for entry in entries])
        except ServiceUnreachableError as error:
            log.warning("receipts not readable", action="caller.read", error=str(error))
            stored = {}
        left: list[_Entry] = []
        for entry in entries:
            receipt = stored.get(entry.call.key)
            if receipt is not None and receipt.answers(entry.call.run_id):
                self._settle(entry, answer_of(receipt, cached=entry.posts == 0))
            else:
                left.append(entry)
        return left

    def _post(self, entries: list[_Entry]) -> None:
        now_ms = self._now_ms()
        for entry in entries:
            if not self._is_waited_for(entry):
                continue
            entry.posts += 1
            entry.posted_ms = now_ms
            entry.poll_at_ms = now_ms + reposting.poll_delay_ms(entry.polls, self._limits)
            self._poster.add(entry.lane, entry.call)

    # ---- answers

    async def _read_inbox(self) -> None:
        while True:
            try:
                answers = await self._inbox.pop(self._session_id, self._limits.inbox_block_s)
            except ServiceUnreachableError as error:
                log.warning("inbox not readable", action="caller.inbox", error=str(error))
                await asyncio.sleep(self._limits.inbox_block_s)
                continue
            await self._take(answers)

    async def _take(self, answers: list[Answer]) -> None:
        stored: list[_Entry] = []
        again: list[_Entry] = []
        for answer in answers:
            entry = self._entries.get(answer.key)
            if entry is None:
                continue
            if answer.state is AnswerState.STORED:
                stored.append(entry)
            elif answer.state is AnswerState.RETURNED:
                again.append(entry)
            else:
                self._settle(entry, answer)
        if stored:
            await self._unanswered(stored)
        self._post(again)

    def _settle(self, entry: _Entry, answer: Answer) -> None:
        self._entries.pop(entry.call.key, None)
        for waiter in entry.waiters:
            if not waiter.done():
                waiter.set_result(answer)

    # ---- the poll: lost answers and lost posts cost time, never results

    async def _poll(self) -> None:
        while True:
            await asyncio.sleep(self._limits.poll_first_ms / 1000 / 2)
            try:
                await self._poll_once()
            except ServiceUnreachableError as error:
                log.warning("poll failed", action="caller.poll", error=str(error))

    async def _poll_once(self) -> None:
        now_ms = self._now_ms()
        due = [entry for entry in list(self._entries.values()) if entry.posts and entry.poll_at_ms <= now_ms]
        chunk = self._limits.receipt_chunk
        for start in range(0, len(due), chunk):
            await self._poll_chunk(due[start : start + chunk], now_ms)

    async def _poll_chunk(self, due: list[_Entry], now_ms: float) -> None:
        waited = [entry for entry in due if self._is_waited_for(entry)]
        left = await self._unanswered(waited)
        if not left:
            return
        leased = await self._leases.alive([entry.call.key for entry in left])
        again: list[_Entry] = []
        for entry in left:
            entry.polls += 1
            entry.poll_at_ms = now_ms + reposting.poll_delay_ms(entry.polls, self._limits)
            verdict = reposting.decide(
                posts=entry.posts,
                posted_ms=entry.posted_ms,
                leased=entry.call.key in leased,
                now_ms=now_ms,
                limits=self._limits,
            )
            if verdict is reposting.Waiting.POST_AGAIN:
                again.append(entry)
        if again:
            log.warning("posting calls again", action="caller.repost", calls=len(again), lane=again[0].lane)
            self._post(again)

    def _is_waited_for(self, entry: _Entry) -> bool:
        """Forget a key whose last waiter was cancelled."""
        if any(not waiter.done() for waiter in entry.waiters):
            return self._entries.get(entry.call.key) is entry
        if self._entries.get(entry.call.key) is entry:
            del self._entries[entry.call.key]
        return False

    def _now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def answer_of(receipt: Receipt, *, cached: bool) -> Answer:
    """A receipt as the answer to a caller."""
    states = {
        ReceiptState.COMPLETED: AnswerState.COMPLETED,
        ReceiptState.FAILED: AnswerState.FAILED,
        ReceiptState.UNKNOWN: AnswerState.UNKNOWN,
        ReceiptState.DISPATCHED: AnswerState.UNKNOWN,
    }
    return Answer(
        key=receipt.key,
        state=states[receipt.state],
        output=receipt.output,
        error=receipt.error,
        cached=cached,
    )
