"""Metrics of the fleet, and the dashboard that is drawn from them."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from runtime.errors import ServiceUnreachableError
from runtime.model.lane_state import LaneState, RateReason, SlotHolder
from runtime.policy.limits import Limits
from workers.cli.lanes import described, view
from workers.metrics import METRICS, FleetCollector

DASHBOARD = Path(__file__).resolve().parents[2] / "examples" / "grafana" / "playlane.json"
CLOSED = LaneState(
    lane="acme",
    org_id="o1",
    provider="acme",
    rules="50/s",
    rate_per_s=0.0,
    full_rate_per_s=50.0,
    reason=RateReason.CLOSED,
    closed_until_ms=14_000,
    in_flight=2,
    waiting=7,
    requests=4,
    items=90,
    capacity=100,
    concurrency=5,
    holders=(SlotHolder(session_id="s1", since_ms=4_000),),
    now_ms=10_000,
)


def scraped(**parts: object) -> str:
    given = {
        "lanes": lambda: [CLOSED],
        "queues": lambda: {"rows": 3},
        "runs": lambda: {"running": 1},
        **parts,
    }
    registry = CollectorRegistry()
    registry.register(FleetCollector(role="lanes", limits=Limits(), **given))  # type: ignore[arg-type]
    return generate_latest(registry).decode()


def test_the_same_numbers_as_the_command_shows() -> None:
    text = scraped()
    labels = '{lane="acme",org_id="o1",provider="acme"}'
    for name, value in (
        ("rate_per_s", 0.0),
        ("full_rate_per_s", 50.0),
        ("closed_s", 4.0),
        ("in_flight", 2.0),
        ("waiting", 7.0),
        ("fill_ratio", 0.9),
        ("slots_held", 1.0),
        ("oldest_slot_s", (CLOSED.now_ms - 4_000) / 1000),
    ):
        assert f"playlane_lane_{name}{labels} {value}" in text
    assert 'playlane_queue_messages{queue="rows"} 3.0' in text
    assert 'playlane_runs{state="running"} 1.0' in text
    assert 'playlane_worker_ready{role="lanes"} 0.0' in text
    [line] = described({"lane.acme": 5}, {"lane.acme": 1}, [CLOSED])
    assert (line["lane"], line["waiting_posts"], line["readers"]) == ("acme", 5, 1)
    assert line["scopes"][0]["fill"] == 0.9
    assert line["scopes"][0]["holders"] == [{"session_id": "s1", "since": "1970-01-01T00:00:04+00:00"}]


def test_a_provider_and_its_fixtures_are_two_series() -> None:
    text = scraped(lanes=lambda: [CLOSED, replace(CLOSED, is_fixture=True)])
    names = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("part", ["lanes", "queues", "runs"])
def test_a_server_that_is_away_costs_its_numbers_only(part: str) -> None:
    def away() -> object:
        raise ServiceUnreachableError("gone")

    text = scraped(**{part: away})
    assert 'playlane_worker_ready{role="lanes"}' in text


def test_the_dashboard_asks_for_metrics_that_exist_and_for_all_of_them() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"\bplaylane_\w+", target["expr"])
    }
    assert asked == set(METRICS)


def test_a_closed_lane_says_for_how_long(capsys: pytest.CaptureFixture) -> None:
    from rich.console import Console

    Console(width=200).print(view({"lane.acme": 5, "lane.default": 0}, {"lane.acme": 1}, [CLOSED]))
    shown = capsys.readouterr().out
    assert "closed for 4 s more, then 50/s" in shown
    assert re.search(r"lane\.default +0 +0", shown)
    assert re.search(r"acme +s1 +6 s", shown)
