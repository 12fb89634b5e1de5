"""Operations of a body on their way: performed on the process's loop, or resting until they are performed again."""

import math
import queue
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import Any

from runtime.engine.body_waits import hastened
from runtime.model.operation import Resting

Performed = dict[str, Any] | Resting | None


class Flights:
    """Belongs to the thread that drives the body; only the landing is told from the loop."""

    def __init__(self) -> None:
        self._flights: dict[str, Future[Performed]] = {}
        self._landed: queue.SimpleQueue[tuple[str, Future[Performed]]] = queue.SimpleQueue()
        self.resting: dict[str, float] = {}  # operation -> when to perform it again

    def __bool__(self) -> bool:
        """Whether anything is being performed."""
        return bool(self._flights)

    def begin(self, key: str, flight: "Future[Performed]") -> None:
        self._flights[key] = flight
        flight.add_done_callback(lambda landed: self._landed.put((key, landed)))

    def landed(self, timeout_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Outcomes that came, waiting for the first; what rests is noted. Raises what a performance raised."""
        for key, flight in self._wait(timeout_s):
            self._flights.pop(key, None)
            if flight.cancelled():
                continue
            performed = flight.result()
            if isinstance(performed, Resting):
                self.resting[key] = time.monotonic() + performed.due_ms / 1000
            elif performed is not None:
                yield key, performed

    def rested(self) -> list[str]:
        """Operations to be performed again now."""
        now_s = time.monotonic()
        due = [key for key, due_s in self.resting.items() if due_s <= now_s]
        for key in due:
            del self.resting[key]
        return due

    def any_due(self) -> bool:
        """Whether something that rested goes on now."""
        return min(self.resting.values(), default=math.inf) <= time.monotonic()

    def hasten(self, ended: list[str]) -> None:
        """Waits that ended: what rested for them goes on."""
        for key in hastened([*self.resting], ended):
            self.resting[key] = 0.0

    def end(self, key: str) -> None:
        """Its outcome is known, or nobody wants it any more."""
        self.resting.pop(key, None)
        flight = self._flights.pop(key, None)
        if flight is not None:
            flight.cancel()

    def cancel_all(self) -> None:
        for flight in self._flights.values():
            flight.cancel()

    def _wait(self, timeout_s: float) -> Iterable[tuple[str, "Future[Performed]"]]:
        try:
            yield self._landed.get(timeout=timeout_s)
            while True:
                yield self._landed.get_nowait()
        except queue.Empty:
            return
