"""What is known of a lane that leaves a call unanswered, in words."""

from collections.abc import Awaitable, Callable, Mapping

import structlog

from runtime.engine.caller_entries import Entry
from runtime.errors import CallWaitExceededError, ServiceUnreachableError
from runtime.model.call import Answer, AnswerState, Call
from runtime.policy.limits import Limits
from runtime.ports import LeaseStore

log = structlog.get_logger()

_WORKED_ON = {
    True: "a lane worker works on it",
    False: "nobody works on it",
    None: "who works on it can't be looked up now",
}


class LaneSilence:
    """Logs and errors about calls without an answer. `is_read` tells whether a lane's posts are taken."""

    def __init__(
        self, leases: LeaseStore, is_read: Callable[[str], Awaitable[bool]] | None, limits: Limits
    ) -> None:
        self._leases = leases
        self._is_read = is_read
        self._limits = limits
        self._told_ms: dict[str, float] = {}  # lane -> when it was last logged

    async def exceeded(
        self, call: Call, lane: str, bound: str, *, posts: int, leased: bool | None = None
    ) -> CallWaitExceededError:
        """The author's wait is over."""
        if leased is None:
            leased = await self._is_leased(call.key)
        return CallWaitExceededError(
            f"no answer to {call.tool} within {bound} from lane {lane}: {_WORKED_ON[leased]}{await self._reading(lane)}"
            "; it is not asked again by itself, and a result that still comes is kept for who asks for it later",
            tool=call.tool,
            retryable=True,
            details={"lane": lane, "leased": leased, "posts": posts},
        )

    async def tell(self, calls: Mapping[str, int], now_ms: float) -> None:
        """Name lanes (with how many calls they leave alone), each once in `wait_log_ms`; the calls wait on."""
        for lane, count in calls.items():
            if now_ms - self._told_ms.get(lane, float("-inf")) < self._limits.wait_log_ms:
                continue
            self._told_ms[lane] = now_ms
            log.warning(
                f"no answer; is a lane worker running?{await self._reading(lane)}",
                action="caller.silence",
                lane=lane,
                calls=count,
            )

    async def end_waits(self, entry: Entry, now_ms: float) -> bool:
        """Nobody works on it: end the waits whose author said so, and let the others' rows wait outside their slices.

        True if somebody has waited longer than is usual.
        """
        is_silent = False
        for waiter in entry.waiting:
            unleased_ms = now_ms - max(waiter.asked_ms, entry.leased_ms)
            is_silent = is_silent or unleased_ms >= self._limits.receipt_wait_ms
            if waiter.receipt_wait_ms is not None and unleased_ms >= waiter.receipt_wait_ms:
                bound = f"receipt_wait_ms={waiter.receipt_wait_ms:g}"
                error = await self.exceeded(waiter.call, entry.lane, bound, posts=entry.posts, leased=False)
                if waiter.is_open:
                    waiter.answered.set_exception(error)
            elif (
                waiter.receipt_wait_ms is None
                and unleased_ms >= self._limits.receipt_wait_ms
                and waiter.is_open
            ):
                later = Answer(
                    key=waiter.call.key, state=AnswerState.TRY_LATER, until_ms=self._limits.hold_ms
                )
                waiter.answered.set_result(later)
        return is_silent

    async def _is_leased(self, key: str) -> bool | None:
        try:
            return bool(await self._leases.alive([key]))
        except ServiceUnreachableError:
            return None

    async def _reading(self, lane: str) -> str:
        if self._is_read is None:
            return ""
        try:
            is_read = await self._is_read(lane)
        except ServiceUnreachableError:
            return ""
        return "" if is_read else ", and posts lie in its queue: start a lane worker"
