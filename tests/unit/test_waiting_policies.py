"""When a caller posts again, and when the renewal thread ends its process: values and `now` decide."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.policy import renewing, reposting
from runtime.policy.limits import DEFAULT_LIMITS
from runtime.policy.renewing import Renewal
from runtime.policy.reposting import Waiting


def repost(**changes: object) -> Waiting:
    values = {"posts": 1, "posted_ms": 0.0, "leased": False, "now_ms": 10_000.0, "limits": DEFAULT_LIMITS}
    return reposting.decide(**(values | changes))  # type: ignore[arg-type]


def test_a_lost_post_is_sent_again_after_ten_seconds() -> None:
    assert repost(now_ms=9_999.0) is Waiting.HOLD
    assert repost() is Waiting.POST_AGAIN


def test_a_live_lease_is_waited_for_however_long() -> None:
    assert repost(leased=True, now_ms=1e9) is Waiting.HOLD


@given(st.integers(min_value=1, max_value=10_000))
def test_delays_double_and_stay_bounded(posts: int) -> None:
    delay = reposting.repost_delay_ms(posts, DEFAULT_LIMITS)
    assert delay <= reposting.repost_delay_ms(posts + 1, DEFAULT_LIMITS) <= DEFAULT_LIMITS.repost_max_ms
    assert reposting.poll_delay_ms(posts, DEFAULT_LIMITS) <= DEFAULT_LIMITS.poll_max_ms


@pytest.mark.parametrize(
    ("stalled_s", "ours", "verdict"),
    [
        (0.0, True, Renewal.RENEW),
        (3.0, True, Renewal.RENEW_AND_WARN),
        (61.0, True, Renewal.EXIT_STALLED),
        (0.0, False, Renewal.EXIT_LOST),
        (61.0, False, Renewal.EXIT_LOST),
    ],
)
def test_renewal(stalled_s: float, ours: bool, verdict: Renewal) -> None:
    decided = renewing.decide(
        loop_stalled_s=stalled_s, session_ours=ours, zombie_tasks=0, limits=DEFAULT_LIMITS
    )
    assert decided is verdict


def test_a_process_full_of_zombies_ends() -> None:
    def decided(zombies: int) -> Renewal:
        return renewing.decide(
            loop_stalled_s=0.0, session_ours=True, zombie_tasks=zombies, limits=DEFAULT_LIMITS
        )

    assert decided(DEFAULT_LIMITS.zombie_tasks) is Renewal.RENEW
    assert decided(DEFAULT_LIMITS.zombie_tasks + 1) is Renewal.EXIT_ZOMBIES
