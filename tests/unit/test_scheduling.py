"""Ticks: each starts one run, whoever sweeps; of missed ones only the last is made up for."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from runtime.engine.scheduling import Scheduling
from runtime.errors import PlayDefinitionError
from runtime.model.schedule import PlaySchedule, Schedule, SeenSchedule
from runtime.play import PlayRegistry, play
from runtime.policy.scheduling import checked, due_tick, run_of_tick
from runtime.testing import MemoryStores

BERLIN = PlaySchedule(
    org_id="default", play="p", schedule=Schedule(cron="0 6 * * *", timezone="Europe/Berlin")
)


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def due(last: str, now: str, of: PlaySchedule = BERLIN) -> datetime | None:
    return due_tick(SeenSchedule(of=of, last_tick=utc(last), now=utc(now)))


def test_a_tick_is_due_when_its_moment_is_over() -> None:
    assert due("2025-01-31T00:00", "2025-01-31T04:59:59") is None
    assert due("2025-01-31T00:00", "2025-01-31T05:00:00") == utc("2025-01-31T05:00")
    assert due("2025-01-31T05:00", "2025-01-31T23:00:00") is None


def test_summer_time_moves_it_and_of_many_missed_only_the_last_counts() -> None:
    assert due("2025-01-01T00:00", "2025-07-10T12:00") == utc("2025-07-10T04:00")


def test_a_moment_that_summer_time_leaves_out_comes_once_that_day() -> None:
    night = PlaySchedule(
        org_id="default", play="p", schedule=Schedule(cron="30 2 * * *", timezone="Europe/Berlin")
    )
    assert due("2025-03-29T12:00", "2025-03-30T12:00", night) == utc("2025-03-30T01:00")


def test_the_run_of_a_tick_is_known_by_it() -> None:
    run = run_of_tick(BERLIN, utc("2025-01-31T05:00"))
    assert (run.run_id, run.input) == ("p.20250131T050000Z", {"scheduled_at": "2025-01-31T05:00:00+00:00"})


@pytest.mark.parametrize(
    ("cron", "timezone", "words"),
    [
        ("0 6 * *", None, "five fields"),
        ("x", None, "five fields"),
        ("0 6 * * *", "Europe/Berln", "no time zone"),
    ],
)
def test_a_wrong_schedule_is_told_when_the_play_is_defined(
    cron: str, timezone: str | None, words: str
) -> None:
    with pytest.raises(PlayDefinitionError, match=words):
        checked(cron, timezone, 'play "p"')


def test_a_time_zone_alone_says_nothing() -> None:
    with pytest.raises(PlayDefinitionError, match="without cron"):
        play("p", timezone="UTC", registry=PlayRegistry())


class Published:
    def __init__(self) -> None:
        self.resumed: list[str] = []

    async def resume(self, run_ids: Sequence[str]) -> None:
        self.resumed += run_ids

    async def pages_out(self, pages: Any) -> None:
        raise NotImplementedError

    async def post(self, lane: str, calls: Any) -> None:
        raise NotImplementedError


async def test_many_schedulers_start_a_tick_once() -> None:
    clock = [utc("2025-01-31T04:30").timestamp()]
    stores = MemoryStores(lambda: clock[0])
    registry = PlayRegistry()

    @play("p", cron="0 6 * * *", timezone="Europe/Berlin", registry=registry)
    async def p(ctx: Any, input: Any) -> None: ...

    published = Published()
    schedulers = [
        Scheduling(stores.schedules, published, org_id="default", plays=registry.all) for _ in range(3)
    ]

    async def sweep() -> int:
        return sum(await asyncio.gather(*(one.sweep() for one in schedulers)))

    assert await sweep() == 0
    clock[0] += 3_600
    assert await sweep() == 1
    assert await sweep() == 0
    assert published.resumed == ["p.20250131T050000Z"]
    assert list(stores.state.runs) == published.resumed
