"""A worker is ready while it works, and says why not; one that lost its broker for good ends."""

from math import inf

import pytest

from runtime.policy.limits import Limits
from runtime.policy.readiness import Vitals, consumer_is_lost, not_ready

LIMITS = Limits()
WELL = Vitals(loop_s=0.5, session_s=9.0, redis_s=9.0, reading_s=1.0)


def test_a_worker_that_works_is_ready() -> None:
    assert not_ready(WELL, LIMITS) == []


@pytest.mark.parametrize(
    ("vitals", "said"),
    [
        (Vitals(loop_s=0, session_s=0, redis_s=0), "it doesn't read its queues yet"),
        (Vitals(loop_s=7, session_s=0, redis_s=0, reading_s=0), "its loop hasn't turned for 7 s"),
        (
            Vitals(loop_s=0, session_s=40, redis_s=0, reading_s=0),
            "its session in Postgres was not renewed for 40 s",
        ),
        (
            Vitals(loop_s=0, session_s=0, redis_s=40, reading_s=0),
            "its heartbeat in Redis was not written for 40 s",
        ),
        (
            Vitals(loop_s=0, session_s=0, redis_s=0, reading_s=0, draining=True),
            "it is being stopped and takes nothing new",
        ),
        (
            Vitals(loop_s=0, session_s=0, redis_s=0, reading_s=0, disconnected=True),
            "it lost its connection to the broker",
        ),
    ],
)
def test_what_does_not_work_is_named(vitals: Vitals, said: str) -> None:
    assert not_ready(vitals, LIMITS) == [said]


@pytest.mark.parametrize(
    ("vitals", "lost"),
    [
        (WELL, False),
        (Vitals(redis_s=1, reading_s=31), True),
        (Vitals(redis_s=40, reading_s=31), False),  # Redis itself is away: a restart would not help
        (Vitals(redis_s=1, reading_s=inf), False),  # it has not begun to read
        (Vitals(redis_s=1, reading_s=31, draining=True), False),
    ],
)
def test_only_a_consumer_that_could_read_and_does_not_is_lost(vitals: Vitals, lost: bool) -> None:
    assert consumer_is_lost(vitals, LIMITS) is lost
