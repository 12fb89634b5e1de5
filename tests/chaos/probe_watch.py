"""Asks the probes of workers, often, while something happens to them."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import httpx

EVERY_S = 0.05


class ProbeWatch:
    """What each worker's probe has said so far; no answer is red too."""

    def __init__(self, ports: Mapping[str, int]) -> None:
        self._ports = ports
        self._http = httpx.Client(trust_env=False, timeout=2.0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="probe-watch", daemon=True)
        self.red: dict[str, set[str]] = {name: set() for name in ports}
        self.green_now: set[str] = set()

    @contextmanager
    def watching(self) -> Iterator["ProbeWatch"]:
        self._thread.start()
        try:
            yield self
        finally:
            self._ended.set()
            self._thread.join()
            self._http.close()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY_S):
            for name, port in self._ports.items():
                reasons = self._reasons(port)
                if reasons:
                    self.red[name].update(reasons)
                    self.green_now.discard(name)
                else:
                    self.green_now.add(name)

    def _reasons(self, port: int) -> list[str]:
        try:
            return self._http.get(f"http://127.0.0.1:{port}/readyz").json()["reasons"]
        except httpx.HTTPError as error:
            return [f"no answer: {type(error).__name__}"]
