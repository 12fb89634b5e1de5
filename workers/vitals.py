"""When each part of this process was last seen to work."""

import threading
import time

from runtime.policy.readiness import Vitals


class VitalSigns:
    """Marked from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, float] = {}
        self._draining = False
        self._disconnected = False

    def loop(self) -> None:
        self._mark("loop")

    def session(self) -> None:
        self._mark("session")

    def redis(self) -> None:
        self._mark("redis")

    def reading(self) -> None:
        self._disconnected = False
        self._mark("reading")

    def disconnected(self) -> None:
        self._disconnected = True

    def drain(self) -> None:
        self._draining = True

    def now(self) -> Vitals:
        """As of this moment."""
        now_s = time.monotonic()
        with self._lock:
            ages = {f"{part}_s": now_s - at_s for part, at_s in self._seen.items()}
        return Vitals(draining=self._draining, disconnected=self._disconnected, **ages)

    def _mark(self, part: str) -> None:
        with self._lock:
            self._seen[part] = time.monotonic()


vital_signs = VitalSigns()
