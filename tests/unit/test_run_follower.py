"""Following a run: early by Redis, surely by Postgres; the end comes once and last."""

from collections.abc import Callable
from typing import Any

import pytest

from runtime.async_client import AsyncPlayClient
from runtime.errors import RunNotCompletedError, ServiceUnreachableError
from runtime.model.dataset import DatasetState
from runtime.model.events import (
    Event,
    LaneActivity,
    Logged,
    MapCompleted,
    RowUpdated,
    RunEnded,
    RunEvent,
    RunStarted,
)
from runtime.model.run import RunState
from runtime.model.status import RunStatus
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.run_follower import follow
from tests.unit.statuses import BEGIN, dataset_status, run_status
from workers.cli.news import News

STARTED = RunStarted(play="airports", attempt=1)
MAP_ENDED = MapCompleted(dataset="airports", rows=10, completed=10, failed=0)
ENDED = RunEnded(state="completed", result={"n": 1})
DATASETS = (dataset_status(state=DatasetState.SETTLED, rows=10, completed=10, ended_at=BEGIN),)


def event(of: Event, at_ms: int = 1) -> RunEvent:
    return RunEvent(run_id="r1", at_ms=at_ms, event=of)


class Stream:
    """Each look finds what is next; an error is raised; then nothing."""

    def __init__(self, *looks: list[Event] | Exception) -> None:
        self.looks = list(looks)
        self.places: list[str] = []

    def read(self, run_id: str, after: str, *, block: bool = True) -> list[tuple[str, RunEvent]]:
        self.places.append(after)
        look = self.looks.pop(0) if self.looks else []
        if isinstance(look, Exception):
            raise look
        return [(f"{len(self.places)}-{n}", event(one)) for n, one in enumerate(look)]


def statuses(*looks: RunState) -> Callable[[str], RunStatus]:
    left = list(looks)

    def look(run_id: str) -> RunStatus:
        state = left.pop(0) if len(left) > 1 else left[0]
        ended = state is not RunState.RUNNING
        return run_status(
            state,
            started_at=BEGIN,
            ended_at=BEGIN if ended else None,
            result={"n": 1} if ended else None,
            datasets=DATASETS if ended else (),
        )

    return look


def types(stream: Stream, *looks: RunState) -> list[str]:
    told = follow("r1", stream, statuses(*looks), DEFAULT_LIMITS, pause=lambda _: None)
    return [one.event.type for one in told]


RUNNING, DONE = RunState.RUNNING, RunState.COMPLETED


def test_live_events_come_in_order_with_the_end_last() -> None:
    stream = Stream([STARTED], [MAP_ENDED, ENDED])
    found = types(stream, RUNNING, DONE)
    assert found == ["run.started", "map.completed", "map.started", "run.ended"]
    assert stream.places[:2] == ["0", "1-0"]


def test_a_redis_that_is_away_costs_samples_and_not_the_end() -> None:
    away = ServiceUnreachableError("away")
    assert types(Stream(away, away, away, away), RUNNING, RUNNING, DONE) == [
        "run.started",
        "map.started",
        "map.completed",
        "run.ended",
    ]


def test_what_was_told_is_not_told_again_from_postgres() -> None:
    found = types(Stream([STARTED, MAP_ENDED]), RUNNING, DONE)
    assert found == ["run.started", "map.completed", "map.started", "run.ended"]


def test_what_still_comes_of_an_ended_run_is_told_before_its_end() -> None:
    late = Logged(scope="body", level="info", message="late")
    assert types(Stream([], [late], []), RUNNING, DONE)[0] == "log"


async def test_the_async_client_serves_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncPlayClient(redis_url="redis://127.0.0.1:1/0") as client:
        ended = run_status(RunState.FAILED, error={"code": "bad", "message": "no such file"})
        monkeypatch.setattr(client.client, "status", lambda run_id: ended)
        monkeypatch.setattr(client.client, "events", lambda run_id: iter([event(STARTED), event(ENDED)]))
        assert (await client.wait("r1", 1)).state is RunState.FAILED
        with pytest.raises(RunNotCompletedError, match="no such file") as raised:
            await client.result("r1", 1)
        assert raised.value.to_payload()["error"]["code"] == "bad"
        assert [one.event.type async for one in client.events("r1")] == ["run.started", "run.ended"]


def told_by(*looks: list[Event] | Exception) -> tuple[list[str], News]:
    left: list[Any] = list(looks)

    def read(run_id: str, after: str) -> list[tuple[str, RunEvent]]:
        look = left.pop(0)
        if isinstance(look, Exception):
            raise look
        return [("1-1", event(one, 1_000)) for one in look]

    news = News(read)
    return [line for _ in looks for line in news.look("r1")[1]], news


def test_news_are_short_and_name_closed_lanes_and_the_first_failures() -> None:
    closed = LaneActivity(
        lane="zones", tool="zone_at", state="closed", reason="rate_limit", until_ms=9_000, attempt=1
    )
    failed = [RowUpdated(dataset="d", row_key=f"k{n}", state="failed", error="no") for n in range(50)]
    lines, news = told_by(
        [closed, closed, *failed], [Logged(scope="body", level="warning", message="slow")], [ENDED]
    )
    assert lines == [
        "lane zones: zone_at closed, rate_limit, for 8 s",
        *(f"row k{n} failed: no" for n in range(5)),
        "body: warning: slow",
    ]
    assert news.closed(4_000) == ("zones closed for 5 s (rate_limit)",)
    assert news.closed(9_000) == ()


def test_news_say_once_that_there_are_none() -> None:
    away = ServiceUnreachableError("Redis is away")
    lines, _ = told_by(away, away, [], away)
    assert lines == ["Redis is away; watching by Postgres alone"] * 2
