"""Starts a worker's probe and its metrics, where a port is set."""

from prometheus_client import REGISTRY

from broker_config.lanes import LANES
from broker_config.queues import ROLES, queues_of_role
from runtime.errors import BadInputError
from runtime.postgres_store.health import live_runs
from runtime.redis_store.lane_states import lane_states
from workers.metrics import FleetCollector
from workers.probe_server import ProbeServer
from workers.queue_depths import queue_depths
from workers.wiring import WorkerProcess


def serve_probe(part: WorkerProcess) -> ProbeServer | None:
    """Serves until the process ends; None where no port is set."""
    settings = part.settings
    if not settings.probe_port:
        return None
    names = [name for role in ROLES for name in queues_of_role(role, table=LANES)]
    database_url = settings.database_url.get_secret_value()
    REGISTRY.register(
        FleetCollector(
            role=part.role,
            limits=part.limits,
            lanes=lambda: part.bridge.call(
                lane_states(part.stores.state, part.limits), timeout_s=part.limits.client_redis_s
            ),
            queues=lambda: queue_depths(names),
            runs=lambda: live_runs(database_url, part.limits),
        )
    )
    facts = {"role": part.role, "session": part.session_id}
    try:
        server = ProbeServer(settings.probe_address, settings.probe_port, part.limits, lambda: facts)
    except OSError as error:
        raise BadInputError(
            f"the probe can't listen on {settings.probe_address}:{settings.probe_port} ({error.strerror}): "
            "give each worker of a machine its own PLAYLANE_PROBE_PORT, or none"
        ) from error
    server.start()
    return server
