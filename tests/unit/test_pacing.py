"""Pacing arithmetic: meters of rules, merging with a lane's defaults, and how wide a lane works."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtime.model.tool import Counts, PacingRule
from runtime.policy import pacing
from runtime.policy.limits import Limits

LIMITS = Limits()


def meter(limit: float, *, counts: Counts = Counts.REQUESTS, batch: int = 1, **more: float) -> pacing.Meter:
    rule = PacingRule(limit=limit, per_ms=more.pop("per_ms", 1_000.0), counts=counts, **more)
    (made,) = pacing.meters([rule], batch, LIMITS)
    return made


def test_a_meter_is_paced_a_little_below_its_rule() -> None:
    made = meter(50)
    assert made.interval_us == pytest.approx(1_000_000 / 50 / 0.985)
    assert (made.unit, made.burst, made.window_limit) == (1, 0, 50)


def test_the_last_of_a_declared_burst_is_left_to_the_wire() -> None:
    assert meter(50, burst=5).burst == 3
    assert meter(50, burst=1).burst == 0


def test_less_than_one_in_its_time_is_one_in_a_longer_time() -> None:
    made = meter(0.5)
    assert (made.window_us, made.window_limit) == (2_000_000, 1)


@pytest.mark.parametrize(
    ("limit", "batch", "unit"),
    [(10, 10, 10), (500, 100, 100), (10, 7, 5), (10, 100, 10), (3, 2, 1), (0.5, 10, 1)],
)
def test_a_batch_fills_a_window_with_whole_batches(limit: float, batch: int, unit: int) -> None:
    assert meter(limit, counts=Counts.ITEMS, batch=batch).unit == unit


@given(st.floats(0.01, 10_000), st.integers(1, 200), st.floats(0, 100), st.sampled_from(list(Counts)))
def test_a_request_always_fits_its_windows(limit: float, batch: int, burst: float, counts: Counts) -> None:
    made = meter(limit, counts=counts, batch=batch, burst=burst)
    assert 1 <= made.unit <= batch
    assert made.cost(batch) <= made.window_limit <= max(limit, 1) + burst
    assert made.cost(batch) <= made.part_limit


def test_a_tool_s_own_rules_win_and_a_lane_fills_in() -> None:
    declared = [PacingRule(limit=50, per_ms=1_000)]
    defaults = [PacingRule(limit=5, per_ms=1_000), PacingRule(limit=100, per_ms=60_000)]
    assert pacing.merged(declared, defaults) == (declared[0], defaults[1])
    assert pacing.merged([], defaults) == tuple(defaults)


@pytest.mark.parametrize(
    ("rate", "is_scalar", "latency_ms", "wanted"),
    [
        (None, True, 500, 64),
        (None, False, 500, 8),
        (50, True, 20, 8),
        (100, True, 200, 30),
        (10_000, True, 1_000, 256),
    ],
)
def test_parallelism_follows_rate_and_latency(
    rate: float | None, is_scalar: bool, latency_ms: float, wanted: int
) -> None:
    metered = () if rate is None else (meter(rate),)
    width = pacing.parallelism(metered, is_scalar=is_scalar, latency_ms=latency_ms, groups=8, limits=LIMITS)
    assert width == wanted
