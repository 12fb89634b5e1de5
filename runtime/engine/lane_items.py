"""What a lane works for: posts, who waits, and the items that equal calls are."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from runtime.model.budget import Charge
from runtime.model.call import ANY_AGE, Accepts, Answer, Call
from runtime.model.lease import Lease
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy import freshness

Outgoing = defaultdict[str, list[Answer]]


def outgoing() -> Outgoing:
    """Answers by inbox."""
    return defaultdict(list)


class Accepted:
    """A post in a lane; `wait` returns when none of its calls is left here."""

    def __init__(self, post_id: str, calls: int) -> None:
        self.post_id = post_id
        self.calls = calls
        self._open = calls
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.settle(0)

    @property
    def is_done(self) -> bool:
        return self._done.done()

    async def wait(self) -> None:
        await asyncio.shield(self._done)

    def when_done(self, callback: Callable[[], None]) -> None:
        """Call back on the loop when all calls are answered or left to others."""
        self._done.add_done_callback(lambda _done: callback())

    def settle(self, calls: int = 1) -> None:
        self._open -= calls
        if self._open <= 0 and not self._done.done():
            self._done.set_result(None)


@dataclass(frozen=True, slots=True)
class Waiter:
    """Somebody who waits for an item: an inbox on behalf of a run, counted in a post (none after a takeover)."""

    inbox: str
    run_id: str
    post: Accepted | None
    accepts: Accepts = ANY_AGE

    def takes(self, receipt: Receipt) -> bool:
        """Whether the receipt answers this one."""
        return freshness.answers(receipt, run_id=self.run_id, accepts=self.accepts)


@dataclass(slots=True, eq=False)
class Item:
    """One key that this process works for; equal calls are one item."""

    call: Call
    fence: int = 0
    shared_fence: int = 0  # of a forced call's shared key
    refreshes: bool = False  # replaces a completed receipt that is too old for who waits
    mark_key: str | None = None  # where its sending is marked, if not at its own key
    is_marked: bool = False  # its sending is marked durably, and it was not sent yet
    is_reserved: bool = False  # its run's budget holds room for it, and it was not sent yet
    is_queued: bool = False  # in a bucket or beyond: no longer the admission's
    waiters: list[Waiter] = field(default_factory=list)

    @property
    def lease(self) -> Lease:
        return Lease(key=self.call.key, fence=self.fence)

    @property
    def leases(self) -> list[Lease]:
        """What this session holds for it."""
        held = [self.lease] if self.fence else []
        if self.shared_fence and self.call.shared_key:
            held.append(Lease(key=self.call.shared_key, fence=self.shared_fence))
        return held


def mark_of(item: Item) -> Receipt:
    """The durable word that a call is about to be sent."""
    call = item.call
    return Receipt(
        key=item.mark_key or call.key,
        org_id=call.org_id,
        tool=call.tool,
        run_id=call.run_id,
        state=ReceiptState.DISPATCHED,
        fence=item.fence,
    )


def freed_charges(items: Iterable[Item]) -> list[Charge]:
    charges: list[Charge] = []
    for item in items:
        if item.is_reserved:
            item.is_reserved = False
            charges.append(
                Charge(accounts=item.call.accounts, key=item.call.key, fence=item.fence, is_freed=True)
            )
    return charges


def leases_of(items: Iterable[Item]) -> list[Lease]:
    """Everything held for the items."""
    return [lease for item in items for lease in item.leases]
