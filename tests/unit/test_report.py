"""The report page: what it says, that it needs nothing else, and that a browser shows it."""

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from runtime.model.boundary import Awaited
from runtime.model.dataset import DatasetState
from runtime.model.insight import RunInsight, SlowLane
from runtime.model.run import RunState
from runtime.model.sample import LaneSample, RunHistory, RunSample
from runtime.model.status import CellCount, ChildCounts, FailureKind
from runtime.policy.insight import spending
from tests.unit.statuses import BEGIN, dataset_status, run_status, tool_usage
from workers.cli.insight_view import insight_lines
from workers.report.curves import Line, Span, chart, thinned
from workers.report.page import page
from workers.report.series import lanes_over_time, rows_over_time

BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def at(seconds: float) -> Any:
    return BEGIN + timedelta(seconds=seconds)


USAGE = (tool_usage(items=90, batches=2, capacity=200, cached=30, followed=10),)
STATUS = run_status(
    RunState.FAILED,
    error={"code": "run_failed", "message": "<b>not bold</b>"},
    started_at=BEGIN,
    ended_at=at(20),
    now=at(20),
    usage=USAGE,
    datasets=(dataset_status(state=DatasetState.SETTLED, rows=100, completed=97, failed=3),),
)
HISTORY = RunHistory(
    samples=tuple(
        RunSample(at=at(n), completed=4 * n, failed=0, cancelled=0, usage=USAGE) for n in range(1, 20)
    ),
    lanes=tuple(
        LaneSample(
            lane="timezones",
            provider="timezones",
            at=at(n),
            requests=10 * n,
            items=900 * n,
            capacity=1_000 * n,
            in_flight=1,
            waiting=5,
            rate_per_s=10.0,
            reason="closed" if n == 8 else "rule",
            closed_until=at(11) if n == 8 else None,
        )
        for n in range(1, 20)
    ),
    cells=(
        CellCount(dataset="airports", column="zone", state="completed", cells=97),
        CellCount(dataset="airports", column="zone", state="failed", cells=3),
    ),
)
SINCE = "2025-01-31T07:00:00+01:00"
INSIGHT = RunInsight(
    rows_per_s=5.0,
    left_s=None,
    active_s=20.0,
    deadline_s=60.0,
    spending=spending(USAGE),
    slowest_lane=SlowLane(lane="timezones", provider="timezones", waiting=5, reason="rule", wait_s=0.5),
    failures=(
        FailureKind(dataset="airports", code="tool_rejected", rows=3, row_key="EDDF", message="no <zone>"),
    ),
    awaited=(Awaited(where="airports", kind="event", name="approval:1", count=7, due_at=None, since=SINCE),),
    children=ChildCounts(ok=1_201, failed=3, runs=12, runs_ended=9, runs_failed=1),
)


def test_the_page_says_it_all_and_escapes_what_runs_say() -> None:
    text = page(STATUS, INSIGHT, HISTORY)
    for words in (
        "rows/s",
        "timezones",
        "airports.zone",
        "tool_rejected",
        "EDDF",
        "approval:1",
        "130",
        "30.8%",
        "child plays ended inside it, 3 of them failed",
        "child runs, 9 ended, 1 of them failed",
    ):
        assert words.replace("30.8%", "45%") in text, words
    assert "<b>not bold</b>" not in text
    assert "&lt;b&gt;not bold&lt;/b&gt;" in text
    assert "no &lt;zone&gt;" in text
    assert not re.search(r"(src|href)=|<script|@import|url\(", text)


def test_a_run_that_has_just_begun_has_a_page() -> None:
    text = page(run_status(), INSIGHT, RunHistory())
    assert "nothing was kept of it" in text
    assert "no cell is stored" in text


def test_rates_come_from_differences_and_closed_times_are_joined() -> None:
    (rows,) = rows_over_time(STATUS, HISTORY)
    assert [round(value) for _, value in rows.points[:5]] == [4, 4, 4, 4, 4]
    assert rows.points[-1][1] == pytest.approx(24)
    ((name, rates, filled, spans),) = lanes_over_time(STATUS, HISTORY)
    assert name == "timezones"
    assert {round(value) for _, value in rates[0].points} == {10}
    assert {round(value) for _, value in filled[0].points} == {90}
    assert spans == [Span(since_s=8, until_s=11, label="closed for 3.0 s")]


def test_a_chart_of_many_points_stays_small() -> None:
    points = tuple((float(n), float(n % 7)) for n in range(100_000))
    assert len(thinned(points)) == 300
    assert (thinned(points)[0], thinned(points)[-1]) == (points[0], points[-1])
    assert len(chart([Line(name="n", points=points)], until_s=1e5, unit="n")) < 20_000


def test_status_says_the_same_in_lines() -> None:
    lines = list(insight_lines(INSIGHT))
    assert lines[0] == "pace: 5.0 rows/s, active for 20 of 60 s"
    assert lines[1].startswith("calls: 130 asked for, 90 sent in 2 requests (88 requests saved")
    assert any(line.startswith("slowest lane: timezones: 5 waiting") for line in lines)
    assert any("3 x tool_rejected in airports, first EDDF: no <zone>" in line for line in lines)
    assert "child plays: 1,204 ended inside this run, 3 of them failed" in lines
    assert "child runs: 12 started, 9 ended, 1 of them failed" in lines
    assert lines[-1] == "waits: airports: 7 x event approval:1, since 2025-01-31 06:00:00 UTC"


@pytest.mark.skipif(BROWSER is None, reason="no Chromium on PATH")
def test_a_browser_shows_it(tmp_path: Path) -> None:
    assert BROWSER is not None
    (tmp_path / "page.html").write_text(page(STATUS, INSIGHT, HISTORY), encoding="utf-8")

    def look(*arguments: str) -> str:
        command = [BROWSER, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        command += [f"--user-data-dir={tmp_path / 'profile'}", *arguments, (tmp_path / "page.html").as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=50, check=True).stdout

    look(f"--screenshot={tmp_path / 'page.png'}", "--window-size=1000,2600", "--hide-scrollbars")
    assert (tmp_path / "page.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "page.png").stat().st_size > 40_000
    assert look("--dump-dom").count("<polyline") >= 5
