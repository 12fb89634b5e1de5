"""Free ports and liveness probes on 127.0.0.1."""

import http.client
import socket

from runtime.policy.limits import DEFAULT_LIMITS


def free_port(preferred: int = 0) -> int:
    """The preferred port if nobody has it, else any free one."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", preferred))
        except OSError:
            probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def answers_ok(port: int, path: str) -> bool:
    """GET path answers 200; asked directly, whatever proxy the environment names."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=DEFAULT_LIMITS.port_probe_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().status == http.client.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
