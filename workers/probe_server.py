"""`/healthz`, `/readyz` and `/metrics` of one worker, from a thread of its own: a blocked loop still answers."""

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import orjson
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.policy.readiness import not_ready
from workers.vitals import vital_signs

log = structlog.get_logger()
JSON = "application/json"


class ProbeServer:
    """Serves until the process ends."""

    def __init__(
        self, address: str, port: int, limits: Limits, facts: Callable[[], dict[str, Any]] = dict
    ) -> None:
        handler = type("Handler", (_Handler,), {"limits": limits, "facts": staticmethod(facts)})
        self._server = ThreadingHTTPServer((address, port), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="playlane-probe", daemon=True)

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    def start(self) -> None:
        self._thread.start()
        log.info("probe listens", action="probe.start", port=self.port)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    limits: Limits
    facts: Callable[[], dict[str, Any]]
    timeout = DEFAULT_LIMITS.probe_request_s
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        match self.path.partition("?")[0]:
            case "/healthz":
                self._answer(200, JSON, orjson.dumps({"alive": True}))
            case "/readyz":
                reasons = not_ready(vital_signs.now(), self.limits)
                body = {"ready": not reasons, "reasons": reasons, **self.facts()}
                self._answer(503 if reasons else 200, JSON, orjson.dumps(body))
            case "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest())
            case _:
                self._answer(404, JSON, orjson.dumps({"paths": ["/healthz", "/readyz", "/metrics"]}))

    def _answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds: they aren't logged."""
