"""Posts: one publish in flight per lane; what arrives meanwhile is the next post. Runs take turns."""

import asyncio
from collections import Counter, OrderedDict
from dataclasses import dataclass, field

import orjson
import structlog

from runtime.model.call import Call
from runtime.policy.limits import Limits
from runtime.ports import Publisher

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Line:
    """One lane's calls: those that wait to be posted, by run and in order, and how many of each run are out."""

    waiting: "OrderedDict[str, OrderedDict[str, Call]]" = field(default_factory=OrderedDict)
    out: Counter[str] = field(default_factory=Counter)


class Poster:
    """Gathers calls per lane into few, fat messages. A lost post is repaired by its caller's poll.

    A run has at most `run_calls_posted` calls out on a lane, so that it never fills the lane's queue before others.
    """

    def __init__(self, publisher: Publisher, limits: Limits) -> None:
        self._publisher = publisher
        self._limits = limits
        self._lines: dict[str, _Line] = {}
        self._publishing: dict[str, asyncio.Task[None]] = {}

    def add(self, lane: str, call: Call) -> None:
        """Send `call` with one of the lane's next posts; it counts as out until `done` is told."""
        line = self._lines.setdefault(lane, _Line())
        line.waiting.setdefault(call.run_id, OrderedDict())[call.key] = call
        self._start(lane)

    def done(self, lane: str, run_id: str, key: str) -> None:
        """What was added is answered, or nobody waits for it any more."""
        line = self._lines.get(lane)
        if line is None:
            return
        queue = line.waiting.get(run_id, OrderedDict())
        if queue.pop(key, None) is None:
            line.out[run_id] -= 1
        if not queue:
            line.waiting.pop(run_id, None)
        if line.out[run_id] <= 0:
            del line.out[run_id]
        if line.waiting:
            self._start(lane)
        elif not line.out:
            del self._lines[lane]

    def holds(self, lane: str, run_id: str, key: str) -> bool:
        """Whether an added call was not posted yet."""
        line = self._lines.get(lane)
        return line is not None and key in line.waiting.get(run_id, ())

    def _start(self, lane: str) -> None:
        if lane not in self._publishing:
            self._publishing[lane] = asyncio.get_running_loop().create_task(self._publish(lane))

    async def _publish(self, lane: str) -> None:
        try:
            while post := self._next_post(lane):
                await self._publisher.post(lane, post)
        except Exception:  # the callers' polls post again what was lost, and the next call sends what waits
            log.exception("post failed", action="poster.post", lane=lane)
        finally:
            del self._publishing[lane]

    def _next_post(self, lane: str) -> list[Call]:
        """Runs in turn, a call each, while they have room."""
        line = self._lines.get(lane, _Line())
        calls: list[Call] = []
        size = 0
        turns = [run_id for run_id in line.waiting if self._has_room(line, run_id)]
        while turns and len(calls) < self._limits.post_calls:
            run_id = turns.pop(0)
            queue = line.waiting[run_id]
            key, call = next(iter(queue.items()))
            size += len(orjson.dumps(call.input, default=str)) + 400
            if calls and size > self._limits.post_bytes:
                break
            del queue[key]
            calls.append(call)
            line.out[run_id] += 1
            if not queue:
                del line.waiting[run_id]
                continue
            line.waiting.move_to_end(run_id)
            if self._has_room(line, run_id):
                turns.append(run_id)
        return calls

    def _has_room(self, line: _Line, run_id: str) -> bool:
        return line.out[run_id] < self._limits.run_calls_posted
