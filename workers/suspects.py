"""One suspect at a time in a process: if it dies, it is known who did it."""

import threading
from collections import deque
from collections.abc import Callable

import structlog

log = structlog.get_logger()


class SuspectLine:
    """Runs work in turn on whichever thread finds the turn free; other threads leave theirs behind and go on.

    What is left behind is claimed by nobody yet: if it is lost its slice is sent again.
    """

    def __init__(self, bound: int) -> None:
        self._line: deque[Callable[[], None]] = deque(maxlen=bound)
        self._turn = threading.Lock()

    def run(self, work: Callable[[], None]) -> None:
        """Do `work`, now or later on another thread; what it raises is logged."""
        self._line.append(work)
        while self._line and self._turn.acquire(blocking=False):
            try:
                while self._line:
                    self._do(self._line.popleft())
            finally:
                self._turn.release()

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception:
            log.exception("suspect given back", action="slice.suspect")
