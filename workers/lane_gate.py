"""A lane's high-water mark: with that many calls in this process its queue alone is not read, until most are done."""

import threading
from collections import Counter
from typing import Any

import structlog

from broker_config.queues import lane_queue
from runtime.policy.limits import Limits
from runtime.policy.pacing import GateMove, gate_move

log = structlog.get_logger()


class LaneGate:
    """Counts the calls of every lane from their message to their answer.

    Queues are paused and read again in the consumer's thread; calls enter and leave in any thread. A paused
    queue is no longer among those that a consumer reads, so that one made anew after a lost connection doesn't either.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._lock = threading.Lock()
        self._held: Counter[str] = Counter()
        self._paused: set[str] = set()
        self._consumer: Any = None

    @property
    def paused(self) -> frozenset[str]:
        return frozenset(self._paused)

    def serve(self, consumer: Any) -> None:
        """From now on (again, after a lost connection) queues are those of `consumer`, whose timers are new."""
        self._consumer = consumer
        if self._paused:
            self._look_later()

    def enter(self, lane: str, calls: int) -> None:
        """A post arrived."""
        with self._lock:
            self._held[lane] += calls

    def leave(self, lane: str, calls: int) -> None:
        """A post is done."""
        with self._lock:
            self._held[lane] -= calls
            if self._held[lane] <= 0:
                del self._held[lane]

    def held(self, lane: str) -> int:
        with self._lock:
            return self._held[lane]

    def look(self, lane: str) -> None:
        """Pause the lane's queue if it holds too much; called in the consumer's thread."""
        if lane not in self._paused:
            self._move(lane)

    def _move(self, lane: str) -> None:
        move = gate_move(held=self.held(lane), is_paused=lane in self._paused, limits=self._limits)
        if move is GateMove.PAUSE:
            log.info("lane is full, its queue waits", action="lane.pause", lane=lane, calls=self.held(lane))
            self._paused.add(lane)
            self._consumer.cancel_task_queue(lane_queue(lane))
            self._look_later()
        elif move is GateMove.READ:
            log.info("lane is read again", action="lane.resume", lane=lane, calls=self.held(lane))
            self._consumer.add_task_queue(lane_queue(lane))
            self._paused.discard(lane)

    def _look_later(self) -> None:
        self._consumer.timer.call_after(self._limits.lane_look_s, self._look)

    def _look(self) -> None:
        was_paused = bool(self._paused)
        try:
            for lane in sorted(self._paused):
                self._move(lane)
        finally:
            # A connection that broke just now is noticed by its consumer; a new one asks again.
            if was_paused and self._paused:
                self._look_later()
