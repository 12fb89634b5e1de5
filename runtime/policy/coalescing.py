"""Buckets: calls that may share a batch gather here until a ticket is due. Values and `now_ms` in, keys and calls out.

The window runs from the first call of an empty bucket and is never reset. A bucket is ready when it holds a full
batch or its window ended; what stays behind after a take has had its window. Runs take turns inside a bucket and
a run's own order is kept. Every ready bucket gets as many tickets as it holds batches; each take uses one up.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketKey:
    """Calls may share a request only if all of this is equal."""

    lane: str
    origin: str
    org_id: str
    integration_mode: str | None
    contract: str
    response_revision: str | None
    auth_scope: str | None
    operation: str
    strategy: str
    strategy_revision: str
    bucket: str
    tool: str


@dataclass(slots=True, eq=False)
class _Bucket(Generic[T]):
    max_batch_size: int
    opened_ms: float
    had_window: bool = False
    tickets: int = 0
    size: int = 0
    runs: "OrderedDict[str, deque[T]]" = field(default_factory=OrderedDict)


class Coalescer(Generic[T]):
    """All buckets of one lane process."""

    def __init__(self, window_ms: float) -> None:
        self._window_ms = window_ms
        self._buckets: dict[BucketKey, _Bucket[T]] = {}
        self._size = 0

    def __len__(self) -> int:
        """Calls that wait here."""
        return self._size

    def add(self, key: BucketKey, max_batch_size: int, calls: Iterable[tuple[str, T]], now_ms: float) -> None:
        """Let calls, each with its run, wait behind their runs' earlier ones."""
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = _Bucket(max_batch_size=max_batch_size, opened_ms=now_ms)
        elif not bucket.size:
            bucket.opened_ms, bucket.had_window, bucket.max_batch_size = now_ms, False, max_batch_size
        for run_id, call in calls:
            self._queue(bucket, run_id).append(call)
            bucket.size += 1
            self._size += 1

    def put_back(
        self, key: BucketKey, max_batch_size: int, taken: Iterable[tuple[str, T]], now_ms: float
    ) -> None:
        """Undo a take: calls return to the front of their runs, and have had their window."""
        back = list(taken)
        if not back:
            return
        bucket = self._buckets.setdefault(key, _Bucket(max_batch_size=max_batch_size, opened_ms=now_ms))
        for run_id, call in reversed(back):
            self._queue(bucket, run_id).appendleft(call)
            bucket.runs.move_to_end(run_id, last=False)
        bucket.size += len(back)
        bucket.had_window = True
        self._size += len(back)

    def tickets_wanted(self, now_ms: float) -> list[BucketKey]:
        """Buckets to reserve a ticket for, once per ticket; each counts as outstanding until its take."""
        wanted: list[BucketKey] = []
        for key, bucket in self._buckets.items():
            missing = self._batches_ready(bucket, now_ms) - bucket.tickets
            if missing > 0:
                bucket.tickets += missing
                wanted.extend([key] * missing)
        return wanted

    def next_window_end(self) -> float | None:
        """When the next bucket gets ready by its window alone; None if no bucket waits for that."""
        ends = [
            bucket.opened_ms + self._window_ms
            for bucket in self._buckets.values()
            if bucket.size and not bucket.had_window and bucket.size > bucket.tickets * bucket.max_batch_size
        ]
        return min(ends, default=None)

    def waiting(self, key: BucketKey) -> int:
        """How many calls a bucket holds now."""
        bucket = self._buckets.get(key)
        return bucket.size if bucket else 0

    def take(self, key: BucketKey, most: int | None = None) -> list[T]:
        """Use a ticket: up to a full batch (or `most`) of what the bucket holds now, runs in turn."""
        bucket = self._buckets.get(key)
        if bucket is None:
            return []
        bucket.tickets = max(0, bucket.tickets - 1)
        most = bucket.max_batch_size if most is None else min(most, bucket.max_batch_size)
        taken: list[T] = []
        while bucket.size and len(taken) < most:
            taken.append(self._next(bucket))
        bucket.had_window = bucket.size > 0
        self._forget_if_idle(key, bucket)
        return taken

    def next_calls(self, key: BucketKey) -> list[T]:
        """What the bucket's tickets would take now, in that order; nothing is taken."""
        bucket = self._buckets.get(key)
        if bucket is None:
            return []
        most = max(1, bucket.tickets) * bucket.max_batch_size
        turns = [deque(queue) for queue in bucket.runs.values()]
        found: list[T] = []
        while turns and len(found) < most:
            found += [queue.popleft() for queue in turns]
            turns = [queue for queue in turns if queue]
        return found[:most]

    def take_newest(self, key: BucketKey, most: int) -> list[T]:
        """Use a ticket for those whose turn is last: the newest of the run with the most calls."""
        bucket = self._buckets.get(key)
        if bucket is None:
            return []
        bucket.tickets = max(0, bucket.tickets - 1)
        taken: list[T] = []
        while bucket.size and len(taken) < most:
            taken.append(self._last(bucket))
        self._forget_if_idle(key, bucket)
        return taken[::-1]

    def give_back_ticket(self, key: BucketKey) -> None:
        """A ticket that took nothing and will take nothing."""
        bucket = self._buckets.get(key)
        if bucket is not None:
            bucket.tickets = max(0, bucket.tickets - 1)
            self._forget_if_idle(key, bucket)

    def remove(self, is_unwanted: Callable[[T], bool]) -> list[T]:
        """Take out every call that `is_unwanted`, in order; tickets stay and take what is left."""
        removed: list[T] = []
        for key, bucket in list(self._buckets.items()):
            for run_id, queue in list(bucket.runs.items()):
                gone = [call for call in queue if is_unwanted(call)]
                if gone:
                    removed += gone
                    bucket.size -= len(gone)
                    kept = deque(call for call in queue if not is_unwanted(call))
                    if kept:
                        bucket.runs[run_id] = kept
                    else:
                        del bucket.runs[run_id]
            self._forget_if_idle(key, bucket)
        self._size -= len(removed)
        return removed

    def _next(self, bucket: _Bucket[T]) -> T:
        run_id, queue = next(iter(bucket.runs.items()))
        call = queue.popleft()
        if queue:
            bucket.runs.move_to_end(run_id)
        else:
            del bucket.runs[run_id]
        bucket.size -= 1
        self._size -= 1
        return call

    def _last(self, bucket: _Bucket[T]) -> T:
        run_id, queue = max(bucket.runs.items(), key=lambda run: len(run[1]))
        call = queue.pop()
        if not queue:
            del bucket.runs[run_id]
        bucket.size -= 1
        self._size -= 1
        return call

    def _queue(self, bucket: _Bucket[T], run_id: str) -> "deque[T]":
        queue = bucket.runs.get(run_id)
        if queue is None:
            queue = bucket.runs[run_id] = deque()
        return queue

    def _batches_ready(self, bucket: _Bucket[T], now_ms: float) -> int:
        full, rest = divmod(bucket.size, bucket.max_batch_size)
        window_ended = bucket.had_window or bucket.opened_ms + self._window_ms <= now_ms
        return full + (1 if rest and window_ended else 0)

    def _forget_if_idle(self, key: BucketKey, bucket: _Bucket[T]) -> None:
        if not bucket.size and not bucket.tickets:
            self._buckets.pop(key, None)
