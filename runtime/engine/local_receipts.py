"""Durable outcomes of what this process does itself (steps, fetches): done once, stored, served as stored."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import structlog

from runtime.engine.gathering import Gathered
from runtime.engine.lane_commit import Committer
from runtime.engine.outcomes import error_payload
from runtime.errors import (
    JsonValueError,
    LocalWaitExceededError,
    OwnershipLostError,
    PersistenceLostError,
    PlaylaneError,
    RunFatalError,
    ServiceUnreachableError,
)
from runtime.model.lease import Claim, ClaimVerdict, Lease
from runtime.model.local_work import LocalOutcome, LocalWork, Made, outcome_of
from runtime.model.receipt import Receipt, ReceiptState
from runtime.policy import freshness, reposting
from runtime.policy.limits import Limits
from runtime.ports import Clock, Fault, LeaseStore, ReceiptStore

log = structlog.get_logger()

Make = Callable[[], Awaitable[Made]]
PRIVATE_FENCE = 1  # one claim owns a private key at a time; of two that overlap the first completion stays
_NOT_OUTCOMES = (RunFatalError, OwnershipLostError, ServiceUnreachableError)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Running:
    """Work under way, and whose run began it."""

    task: "asyncio.Task[LocalOutcome]"
    run_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalParts:
    """What local receipts stand on."""

    session_id: str
    receipts: ReceiptStore
    leases: LeaseStore
    limits: Limits
    clock: Clock
    fault: Fault


class LocalReceipts:
    """One per process, on its loop. `outcome` is the whole of it; `renew` keeps what is held alive."""

    def __init__(self, parts: LocalParts) -> None:
        self._parts = parts
        chunk = parts.limits.receipt_chunk
        self._reads: Gathered[str, Receipt | None] = Gathered(self._read, chunk=chunk)
        self._claims: Gathered[tuple[str, int], Claim] = Gathered(self._claim, chunk=chunk)
        self._committer = Committer(parts)
        self._running: dict[str, _Running] = {}
        self._held: dict[str, Lease] = {}
        self._to_release: list[Lease] = []
        self._uncommitted: list[Receipt] = []

    async def outcome(self, work: LocalWork, make: Make) -> LocalOutcome:
        """The stored outcome of `work`, else what `make` gives, stored first.

        What `make` raises is its outcome too, but for what ends runs, claims and connections. Cancelling an asker
        never cuts the work: it goes on, is stored, and answers whoever asks next.
        Raises PersistenceLostError if the outcome can't be stored, LocalWaitExceededError if another process works
        on a shared key for too long.
        """
        while True:
            running = self._running.get(work.key) or self._start(work, make)
            try:
                outcome = await asyncio.shield(running.task)
            except RunFatalError:
                if running.run_id == work.run_id:
                    raise
                continue  # what ends another run is no answer to this one
            if freshness.serves_local(outcome, work):
                return outcome

    async def settled(self, keys: Sequence[str] | None = None) -> None:
        """Wait, for `local_finish_s` at most, until no work of these keys, or none at all, runs here."""
        asked = list(self._running) if keys is None else keys
        running = [self._running[key].task for key in asked if key in self._running]
        if running:
            await asyncio.wait(running, timeout=self._parts.limits.local_finish_s)

    def when_ended(self, key: str, then: Callable[[], None]) -> None:
        """Call `then` when no work of this key runs here: its asker may be gone before."""
        running = self._running.get(key)
        if running is None:
            then()
        else:
            running.task.add_done_callback(lambda _: then())

    async def renew(self) -> None:
        """At each heartbeat: put leases back that Redis lost, free and store what could not be before."""
        parts = self._parts
        await parts.leases.renew(parts.session_id, list(self._held.values()), ())
        if self._to_release:
            leases, self._to_release = self._to_release, []
            await self._release(leases)
        if self._uncommitted:
            waiting = list(self._uncommitted)
            await self._committer.store(waiting, (), is_repeat=True)
            del self._uncommitted[: len(waiting)]
            await self._release(
                [self._held.pop(receipt.key) for receipt in waiting if receipt.key in self._held]
            )

    def running(self) -> int:
        """How much work is under way."""
        return len(self._running)

    # ---- one piece of work

    def _start(self, work: LocalWork, make: Make) -> _Running:
        task = asyncio.get_running_loop().create_task(self._work(work, make), name=work.name)
        running = self._running[work.key] = _Running(task=task, run_id=work.run_id)

        def ended(done: "asyncio.Task[LocalOutcome]") -> None:
            self._running.pop(work.key, None)
            if not done.cancelled() and done.exception() is not None:
                log.debug("local work broke off", action="local.broke", work=work.name, run_id=work.run_id)

        task.add_done_callback(ended)
        return running

    async def _work(self, work: LocalWork, make: Make) -> LocalOutcome:
        stored = await self._reads.ask(work.key)
        if (answer := _answer(stored, work)) is not None:
            return answer
        if not work.shared:
            return await self._make(work, make, fence=PRIVATE_FENCE, refreshes=False)
        return await self._take_turns(work, make, stored)

    async def _take_turns(self, work: LocalWork, make: Make, stored: Receipt | None) -> LocalOutcome:
        """A shared key: claim it, or wait for its live owner's outcome."""
        limits, clock = self._parts.limits, self._parts.clock
        started_ms, polls = clock.now_ms(), 0
        while True:
            claim = await self._claims.ask((work.key, 0 if stored is None else stored.fence + 1))
            if claim.verdict is ClaimVerdict.GRANTED:
                return await self._make_under(Lease(key=work.key, fence=claim.fence), work, make)
            waited_ms = clock.now_ms() - started_ms
            if waited_ms >= limits.local_wait_ms:
                raise LocalWaitExceededError(
                    f"{work.name}: another process works on the same key, since {waited_ms / 1000:.0f} s; nothing was "
                    "done here. A later run is served its result, or give the work another id or semantic_key"
                )
            await clock.sleep(min(reposting.poll_delay_ms(polls, limits), limits.local_poll_ms * (polls + 1)))
            polls += 1
            stored = await self._reads.ask(work.key)
            if (answer := _answer(stored, work)) is not None:
                return answer

    async def _make_under(self, lease: Lease, work: LocalWork, make: Make) -> LocalOutcome:
        self._held[work.key] = lease
        try:
            await self._committer.wait_open()  # what could not be stored before may be the answer
            stored = await self._reads.ask(work.key)
            answer = _answer(stored, work)
            if answer is None:
                refreshes = stored is not None and stored.state is ReceiptState.COMPLETED
                answer = await self._make(work, make, fence=lease.fence, refreshes=refreshes)
        except BaseException:
            # The lease of an outcome that waits to be stored is kept: `renew` stores it and frees it then.
            if not any(receipt.key == work.key for receipt in self._uncommitted):
                await self._free(work.key)
            raise
        await self._free(work.key)
        return answer

    async def _make(self, work: LocalWork, make: Make, *, fence: int, refreshes: bool) -> LocalOutcome:
        await self._committer.wait_open()
        await self._parts.fault("local.before_work")
        receipt = _receipt(work, await self._attempt(work, make), fence=fence, refreshes=refreshes)
        await self._parts.fault("local.before_commit")
        try:
            kept = (await self._committer.commit([receipt], ()))[work.key]
        except PersistenceLostError:
            self._keep(receipt)
            raise
        await self._parts.fault("local.after_commit")
        answers = freshness.answers(kept, run_id=work.run_id, accepts=work.accepts)
        return outcome_of(kept if answers else receipt, cached=False)

    async def _attempt(self, work: LocalWork, make: Make) -> "Made | BaseException":
        """What the work gave, or how it failed. Whatever an author's function raises must not end the loop."""
        try:
            made = await make()
        except _NOT_OUTCOMES:
            raise
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is not None and task.cancelling() > 0:
                raise
            return error
        except (Exception, SystemExit, KeyboardInterrupt, GeneratorExit) as error:  # noqa: BLE001
            return error
        size, most = len(made.output), self._parts.limits.receipt_output_bytes
        return (
            made
            if size <= most
            else JsonValueError("$", f"{size:,} bytes of JSON are more than the {most:,} kept")
        )

    def _keep(self, receipt: Receipt) -> None:
        if len(self._uncommitted) < self._parts.limits.uncommitted_local:
            self._uncommitted.append(receipt)
            return
        log.error(
            "outcome dropped, too many wait", action="local.drop", run_id=receipt.run_id, key=receipt.key
        )

    # ---- stores

    async def _read(self, keys: Sequence[str]) -> Sequence[Receipt | None]:
        found = await self._parts.receipts.read(keys)
        return [found.get(key) for key in keys]

    async def _claim(self, asked: Sequence[tuple[str, int]]) -> Sequence[Claim]:
        floors = {key: floor for key, floor in asked if floor}
        return await self._parts.leases.claim(self._parts.session_id, [key for key, _ in asked], floors)

    async def _free(self, key: str) -> None:
        lease = self._held.pop(key, None)
        if lease is not None:
            await self._release([lease])

    async def _release(self, leases: Sequence[Lease]) -> None:
        if not leases:
            return
        try:
            await self._parts.leases.release(self._parts.session_id, leases)
        except ServiceUnreachableError as error:
            log.warning("leases of steps not freed yet", action="local.release", error=str(error))
            room = self._parts.limits.unreleased_leases - len(self._to_release)
            self._to_release.extend(leases[: max(0, room)])


def _answer(stored: Receipt | None, work: LocalWork) -> LocalOutcome | None:
    if stored is None or not freshness.answers(stored, run_id=work.run_id, accepts=work.accepts):
        return None
    return outcome_of(stored, cached=True)


def _receipt(work: LocalWork, made: "Made | BaseException", *, fence: int, refreshes: bool) -> Receipt:
    """A result that doesn't last, like a failure, answers its own run and gives way to any later result."""
    failed = isinstance(made, BaseException)
    lasting = not failed and made.lasting
    return Receipt(
        key=work.key,
        org_id=work.org_id,
        tool=f"ctx.{work.kind.value}",
        run_id=work.run_id,
        state=ReceiptState.COMPLETED if lasting else ReceiptState.FAILED,
        fence=fence,
        output=None if failed else made.output,
        error=_failure(work, made) if failed else None,
        terminal=isinstance(made, JsonValueError),
        refreshes=refreshes and lasting,
    )


def _failure(work: LocalWork, error: BaseException) -> dict[str, object]:
    payload = error_payload(error)
    return {**payload, "message": f"{work.name} failed: {_said(error)}", "work": work.id}


def _said(error: BaseException) -> str:
    text = str(error_payload(error)["message"])
    return text if isinstance(error, PlaylaneError) else f"{type(error).__name__}: {text}"
