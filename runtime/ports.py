"""What the engine needs of the world, as small Protocols. One contract suite runs on fakes and real stores.

Every store method is one decision that is safe to repeat; a library's connection errors surface as
ServiceUnreachableError after the adapter's own bounded retries.
"""

from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from math import inf
from typing import Any, Protocol, TypeVar

from runtime.model.call import Answer, Call, Usage
from runtime.model.dataset import DatasetFacts, EndedDataset, NewDataset, OpenDataset, SeedPage
from runtime.model.lease import BatchRecord, Claim, Lease, OrphanBatch
from runtime.model.operation import JournalEntry
from runtime.model.page import PageOut
from runtime.model.physical_request import PhysicalReply, PhysicalRequest
from runtime.model.rate_scope import RateScope
from runtime.model.receipt import Receipt
from runtime.model.row import FinishedRow
from runtime.model.row_wait import WokenPage
from runtime.model.run import ClaimedRun, NewRun, RunFacts, RunPoll, RunState
from runtime.model.slice import SliceId, TakenSlice
from runtime.model.tool import ToolMetadata

T = TypeVar("T")


class LoopBridge(Protocol):
    """The process's asyncio loop seen from a plain thread."""

    def call(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T: ...

    def submit(self, work: Coroutine[Any, Any, T]) -> "Future[T]": ...


class SessionStore(Protocol):
    """Lives of worker processes in Postgres. A session is dead when `end_expired` ended it, not before."""

    async def open(self, session_id: str, *, role: str, hostname: str, pid: int, ttl_s: float) -> None: ...

    async def renew(self, session_id: str, ttl_s: float) -> bool:
        """False: the session was ended; whatever it held may belong to others."""
        ...

    async def close(self, session_id: str) -> None:
        """End it now (clean shutdown): its claims are free at once."""
        ...

    async def end_expired(self) -> list[str]:
        """End sessions whose time is up, judged only after one TTL of database uptime."""
        ...

    async def live(self, session_ids: Sequence[str]) -> set[str]: ...


class RunStore(Protocol):
    async def insert(self, run: NewRun) -> bool:
        """True if new; an existing run is never touched."""
        ...

    async def refuse(self, run: NewRun, error: dict[str, Any]) -> bool:
        """Insert the run as failed with the reason; False (nothing done) if it exists."""
        ...

    async def claim(self, run_id: str, session_id: str) -> ClaimedRun | None:
        """Hold a queued run, a waiting run with news, or a run whose holder is dead; attempt + 1."""
        ...

    async def facts(self, run_id: str) -> RunFacts | None:
        """The run's play and input, None if it doesn't exist or has ended."""
        ...

    async def journal(self, run_id: str, after_seq: int = -1) -> list[JournalEntry]:
        """The run's entries above `after_seq`, in order."""
        ...

    async def append_journal(self, run_id: str, attempt: int, entries: Sequence[JournalEntry]) -> None:
        """All entries or none, fenced by the attempt; raises AttemptLostError."""
        ...

    async def arm_timer(self, run_id: str, attempt: int, op_key: str, delay_s: float) -> None:
        """Create the boundary due `delay_s` from now, unless it exists; resolved by `poll` and sweeps."""
        ...

    async def rest(self, run_id: str, attempt: int, op_key: str, delay_s: float) -> None:
        """Wake the run `delay_s` from now, if it is suspended then; asked again, it counts anew from there."""
        ...

    async def cancel_boundary(self, run_id: str, attempt: int, op_key: str) -> None:
        """The body gave this wait up: its open boundary ends cancelled, and an open dataset behind it too."""
        ...

    async def poll(self, run_id: str, attempt: int) -> RunPoll:
        """One round trip; also resolves this run's due timers. Raises AttemptLostError (also when the run ended)."""
        ...

    async def suspend(self, run_id: str, attempt: int, wakes_seen: int) -> bool:
        """False if a boundary was resolved meanwhile (`wakes` moved on)."""
        ...

    async def end(
        self,
        run_id: str,
        attempt: int,
        state: RunState,
        *,
        result: bytes | None,
        error: dict[str, Any] | None,
    ) -> bool:
        """End the run and, in the same transaction, its open datasets, boundaries and unclaimed rows."""
        ...

    async def cancel(self, run_id: str) -> RunState | None:
        """Cancel in one transaction whoever holds it; the state now, None if unknown."""
        ...

    async def fail(self, run_id: str, error: dict[str, Any]) -> bool:
        """End it as failed from outside its body (its rows met what no process can go on from)."""
        ...

    async def release(self, run_id: str, attempt: int) -> None:
        """Give a held run back unfinished (shutdown): it is due for a resume at once."""
        ...

    async def add_logs(self, run_id: str, lines: Sequence["LogLine"]) -> None:
        """Insert or ignore by (run, scope, n)."""
        ...

    async def ended(self, run_ids: Sequence[str]) -> set[str]:
        """Those of `run_ids` that have ended or don't exist."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogLine:
    scope: str
    n: int
    level: str
    message: str
    fields: Mapping[str, Any]


class DatasetStore(Protocol):
    async def open(self, new: NewDataset, attempt: int, op_key: str) -> OpenDataset:
        """Create the dataset and its armed boundary, or find them as they are; fenced by the attempt.

        Raises PlayVersionUnavailableError if the stored column names differ.
        """
        ...

    async def seed_page(self, page: SeedPage) -> int:
        """Store a page's rows; returns how many were duplicates. A page already there is left alone.

        Raises AttemptLostError if the run's attempt moved on or the dataset isn't seeding.
        """
        ...

    async def finish_seeding(self, dataset_id: int, attempt: int) -> None:
        """The whole input is in: seeding -> running; fenced by the attempt."""
        ...

    async def facts(self, dataset_id: int) -> DatasetFacts | None: ...


class SettlingStore(Protocol):
    """The statements of `settle_page`: each decides alone, trusts no caller, may be repeated by anybody."""

    async def settle_page(self, dataset_id: int, page: int) -> bool:
        """True if this call settled it: no slice is open, no row waits. If all that is left sleeps, it is parked."""
        ...

    async def claim_pages(self, dataset_id: int) -> list[int]:
        """Move the window on, as far as pages in flight allow; cut each claimed page into slices."""
        ...

    async def due_slices(self, dataset_id: int, page: int, epoch: str, *, queue_empty: bool) -> list[int]:
        """Mark as sent, and return, the slices of the page that must be published now."""
        ...

    async def end_dataset(self, dataset_id: int) -> EndedDataset | None:
        """Settle it once when all its pages are; resolve its boundary with the outcome; wake its run."""
        ...

    async def stale_pages(self, epoch: str, *, queue_empty: bool) -> list[tuple[str, int, int]]:
        """Sweep: (run, dataset, page) of pages to cut, send or settle; bounded."""
        ...

    async def stale_datasets(self) -> list[int]:
        """Sweep: datasets that can claim a page or end; bounded."""
        ...

    async def due_runs(self) -> list[str]:
        """Sweep: runs to publish `plays.resume` for; marks the hint so that it is rate limited; bounded."""
        ...

    async def resolve_timers(self) -> None: ...

    async def wake_rows(self) -> list[WokenPage]:
        """Let a batch of rows whose wait is over go on; settle these pages to send them. Rows of ended runs stay."""
        ...

    async def wake_budget(self, run_id: str) -> list[WokenPage]:
        """The same for a batch of a run's rows that wait for budget; empty when none is left."""
        ...

    async def run_of(self, dataset_id: int) -> str | None:
        """The run that a dataset belongs to."""
        ...

    def sweep_turn(self, name: str) -> AbstractAsyncContextManager[bool]:
        """False if another process sweeps this just now; tried, never waited for."""
        ...


class SliceStore(Protocol):
    async def take(self, run_id: str, slice_id: SliceId, session_id: str) -> TakenSlice | None:
        """Claim an open slice that no live session holds (dataset open, page claimed, run live): fence + 1.

        If its last holder never came back its open rows count a crash. At `suspect_crashes` the slice is split into
        suspects, one row each, and comes back without rows: finish and settle it to send them.
        """
        ...

    async def flush(self, write: "RowWrite") -> "RowWriteAnswer":
        """One transaction: rows (fenced by their slices), sheet rows, counters, usage, and slices that are done.

        A waiting row has no values yet; its wait is stored. A slice of an ended dataset or run is closed at once.
        """
        ...

    async def release(self, held: Sequence[tuple[SliceId, int]]) -> None:
        """Give slices back unfinished (id, fence): due to be sent again at once."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SliceRows:
    """Finished rows of one held slice; `final`: nothing more comes, finish the slice if no row is open."""

    id: SliceId
    fence: int
    facts: DatasetFacts
    rows: tuple[FinishedRow, ...]
    final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWrite:
    session_id: str
    slices: tuple[SliceRows, ...]
    usage: tuple[Usage, ...] = ()
    logs: tuple[tuple[str, LogLine], ...] = ()  # (run_id, line)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowWriteAnswer:
    """`done`: slices now done; `lost`: slices with a newer fence; `ended`: runs or datasets that have ended."""

    done: frozenset[SliceId]
    lost: frozenset[SliceId]
    ended: frozenset[SliceId]


class ReceiptStore(Protocol):
    async def read(self, keys: Sequence[str]) -> dict[str, Receipt]:
        """Receipts that exist, by key; in chunks of `receipt_chunk` keys and `read_bytes`."""
        ...

    async def commit(
        self, session_id: str, receipts: Sequence[Receipt], usage: Sequence[Usage]
    ) -> dict[str, Receipt]:
        """Store all outcomes in one statement; returns what is stored now for every key.

        An outcome replaces: nothing, or a receipt that isn't completed and has no newer fence.
        A completed receipt gives way to a completed refresh of a newer fence only; else it is what is returned.
        """
        ...

    async def unmark(self, session_id: str, receipts: Sequence[Receipt]) -> None:
        """Remove `dispatched` receipts of these fences that this session stored: they were never sent."""
        ...


class LeaseStore(Protocol):
    """Leases, batch records and the epoch, in Redis; every script is safe to repeat."""

    async def register(self, session_id: str, *, first: bool = False) -> str:
        """Announce the session (heartbeat key) and see to the epoch, which is returned.

        A missing epoch means lost data, hence grace, unless `first`: no other session can hold leases.
        """
        ...

    async def renew(self, session_id: str, leases: Sequence[Lease], batches: Sequence[BatchRecord]) -> str:
        """Heartbeat; if Redis lost its data, re-create what this session holds. Returns the epoch."""
        ...

    async def forget(self, session_id: str) -> None:
        """The session ends: its heartbeat key goes, so its leases are dead."""
        ...

    async def claim(
        self, session_id: str, receipt_keys: Sequence[str], floors: Mapping[str, int]
    ) -> list[Claim]:
        """One script for all keys, aligned. fence = max(Redis time in us, last + 1, floor)."""
        ...

    async def seal(self, batch: BatchRecord) -> list[bool]:
        """Check each lease of the batch (session and fence); if all hold: mark dispatched and record the batch.

        If any doesn't hold nothing changes; the answer, aligned to `batch.keys`, says which hold.
        """
        ...

    async def release(self, session_id: str, leases: Sequence[Lease], batch_id: str | None = None) -> None:
        """Free leases still ours (session and fence) and drop the batch record."""
        ...

    async def adopt(self, session_id: str, batch_id: str) -> BatchRecord | None:
        """Take over a dead session's batch and its leases (new fences); None if alive, gone or another's."""
        ...

    async def orphans(self, limit: int) -> list[str]:
        """Ids of recorded batches whose session is dead."""
        ...

    async def orphans_of(self, batch_ids: Sequence[str]) -> dict[str, OrphanBatch]:
        """What is recorded of batches, by batch; one without a record is left out."""
        ...

    async def alive(self, receipt_keys: Sequence[str]) -> set[str]:
        """Those keys that some live session leases."""
        ...


class Inbox(Protocol):
    async def push(self, answers: Mapping[str, Sequence[Answer]]) -> None:
        """Answers by session, in bulk; large outputs travel as STORED."""
        ...

    async def pop(self, session_id: str, timeout_s: float) -> list[Answer]: ...


class DispatchEpoch(Protocol):
    """A random Redis value that FLUSHALL removes: tells published messages from lost ones."""

    async def epoch(self) -> str: ...

    async def queue_empty(self, queue: str) -> bool: ...


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Time of the process's loop, replaceable in tests."""

    def now_ms(self) -> float: ...

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> Timer: ...

    async def sleep(self, delay_ms: float) -> None: ...


class Ticket(Protocol):
    """A reserved moment to send; `free` gives its place back exactly once."""

    async def due(self, hold_ms: float = inf) -> float:
        """0 at the moment that was reserved; or how long it is till then, at once, if that is longer than `hold_ms`."""
        ...

    def spacing_ms(self, items: int) -> float:
        """How far apart requests of so many items go at the scope's rate; 0 if it has no rule."""
        ...

    async def confirm(self, most: int, *, whole: bool = False) -> tuple[int, float]:
        """When due: (items that may be sent now, 0), or (0, ms to wait): the ticket keeps its place.

        As many as were reserved and as the tokens allow, at most `most`; `whole`: all of them or none.
        """
        ...

    def sent(self) -> None:
        """The request leaves now: late ones count from here."""
        ...

    async def limited(self, retry_after_ms: float | None) -> None:
        """The provider refused with 429: with a wait the scope closes for all, without its rate halves."""
        ...

    async def succeeded(self) -> None:
        """The provider answered: a lowered rate recovers."""
        ...

    def free(self) -> None: ...


class Pacer(Protocol):
    async def reserve(self, scope: RateScope, items: int) -> Ticket: ...


class Requests(Protocol):
    """One physical send through the execution API; raises ExecuteFailedError with the failure's class."""

    async def send(self, request: PhysicalRequest) -> PhysicalReply: ...

    async def attests_fence(self) -> bool:
        """Whether a fenced request may be repeated under its key; raises ServiceUnreachableError."""
        ...


class EndedRuns(Protocol):
    """Which runs have ended (RunStore has it)."""

    async def ended(self, run_ids: Sequence[str]) -> set[str]: ...


class Publisher(Protocol):
    """Messages out. Lost messages are repaired by sweeps and polls, so failures are logged, not raised."""

    async def resume(self, run_ids: Sequence[str]) -> None: ...

    async def pages_out(self, pages: Sequence[PageOut]) -> None: ...

    async def post(self, lane: str, calls: Sequence[Call]) -> None: ...


class ToolCatalog(Protocol):
    async def metadata(self, tool: str, org_id: str) -> ToolMetadata: ...

    async def auth_scope(self, tool: str, org_id: str, *, refresh: bool = False) -> str | None:
        """Digest of the credentials that the tool is called with; None where the API knows no scope for it."""
        ...


class TokenSource(Protocol):
    """Execution API tokens per org; never from a run or a message."""

    async def token(self, org_id: str) -> str: ...


class Fault(Protocol):
    """A named point between two steps where a test can kill, raise or wait; does nothing in production."""

    def __call__(self, point: str) -> Awaitable[None]: ...
