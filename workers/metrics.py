"""Prometheus metrics of the fleet, gathered when they are scraped, by whoever is scraped: nothing is counted twice
where each process tells the same fleet-wide numbers, so a dashboard takes their maximum.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from runtime.errors import PlaylaneError
from runtime.model.lane_state import LaneState
from runtime.policy.limits import Limits
from runtime.policy.readiness import not_ready
from workers.vitals import vital_signs

log = structlog.get_logger()
LABELS = ("lane", "provider", "org_id")

LANE_METRICS: dict[str, tuple[str, Callable[[LaneState], float | None]]] = {
    "playlane_lane_in_flight": ("Requests on the wire", lambda state: state.in_flight),
    "playlane_lane_waiting": ("Tickets and calls in line", lambda state: state.waiting),
    "playlane_lane_rate_per_s": ("Rate now; 0 = closed", lambda state: state.rate_per_s),
    "playlane_lane_full_rate_per_s": ("Declared rate", lambda state: state.full_rate_per_s),
    "playlane_lane_requests": ("Requests sent since a day without any", lambda state: state.requests),
    "playlane_lane_items": ("Calls sent since a day without any", lambda state: state.items),
    "playlane_lane_fill_ratio": ("How full requests were", lambda state: state.fill),
    "playlane_lane_slots_held": ("Concurrency slots held", lambda state: len(state.holders)),
    "playlane_lane_oldest_slot_s": (
        "Seconds since the longest held concurrency slot was taken",
        lambda state: max([0, *(state.now_ms - holder.since_ms for holder in state.holders)]) / 1000,
    ),
    "playlane_lane_closed_s": (
        "Seconds until the provider may be asked again",
        lambda state: max(0, (state.closed_until_ms or 0) - state.now_ms) / 1000,
    ),
}
QUEUE_METRIC = "playlane_queue_messages"
RUN_METRIC = "playlane_runs"
READY_METRIC = "playlane_worker_ready"
METRICS = (*LANE_METRICS, QUEUE_METRIC, RUN_METRIC, READY_METRIC)


class FleetCollector(Collector):
    """Reads lanes, queues and runs at each scrape; what can't be read is left out and logged."""

    def __init__(
        self,
        *,
        role: str,
        limits: Limits,
        lanes: Callable[[], Sequence[LaneState]],
        queues: Callable[[], dict[str, int]],
        runs: Callable[[], dict[str, int]],
    ) -> None:
        self._role = role
        self._limits = limits
        self._lanes = lanes
        self._queues = queues
        self._runs = runs

    def describe(self) -> Iterable[Metric]:
        """Nothing is read when the collector is registered."""
        return []

    def collect(self) -> Iterable[Metric]:
        ready = GaugeMetricFamily(READY_METRIC, "1 while this worker takes work", labels=("role",))
        ready.add_metric([self._role], 0 if not_ready(vital_signs.now(), self._limits) else 1)
        yield ready
        yield from _lane_families(_read("lanes", self._lanes, ()))
        yield _counts(QUEUE_METRIC, "Messages waiting", "queue", _read("queues", self._queues, {}))
        yield _counts(RUN_METRIC, "Runs that have not ended", "state", _read("runs", self._runs, {}))


def _read(what: str, read: Callable[[], Any], nothing: Any) -> Any:
    try:
        return read()
    except (PlaylaneError, TimeoutError, asyncio.CancelledError) as error:
        log.warning("metrics not complete", action="metrics.read", what=what, error=str(error))
        return nothing


def _lane_families(states: Sequence[LaneState]) -> Iterable[Metric]:
    for name, (text, value_of) in LANE_METRICS.items():
        family = GaugeMetricFamily(name, text, labels=LABELS)
        for state in states:
            value = value_of(state)
            if value is not None:
                family.add_metric([state.lane, state.name, state.org_id], value)
        yield family


def _counts(name: str, text: str, label: str, counts: dict[str, int]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, count in counts.items():
        family.add_metric([key], count)
    return family
