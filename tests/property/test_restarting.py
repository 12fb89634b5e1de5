"""The restart decision: backs off, gives up at the limit, never otherwise."""

from hypothesis import given
from hypothesis import strategies as st

from runtime.policy.limits import DEFAULT_LIMITS
from workers.stack.restarting import RestartAfter, StopAll, decide_restart

DEATHS = st.lists(st.floats(0, 10_000), min_size=1, max_size=12).map(sorted)


@given(DEATHS)
def test_gives_up_exactly_when_too_many_died_within_the_window(deaths: list[float]) -> None:
    now = deaths[-1]
    recent = [died for died in deaths if now - died < DEFAULT_LIMITS.restart_window_s]

    decision = decide_restart("rows-1", deaths, now)

    assert isinstance(decision, StopAll) == (len(recent) >= DEFAULT_LIMITS.restart_deaths)


@given(DEATHS)
def test_a_delay_is_bounded_and_grows_with_deaths(deaths: list[float]) -> None:
    now = deaths[-1]
    fewer, more = decide_restart("rows", deaths[1:], now), decide_restart("rows", deaths, now)

    if isinstance(more, RestartAfter) and isinstance(fewer, RestartAfter):
        assert DEFAULT_LIMITS.restart_first_s <= fewer.delay_s <= more.delay_s <= DEFAULT_LIMITS.restart_max_s


def test_the_fifth_death_in_a_minute_stops_all_and_names_the_process() -> None:
    assert decide_restart("lanes", [0, 10, 20, 30], 30) == RestartAfter(delay_s=4.0)
    decision = decide_restart("lanes", [0, 10, 20, 30, 59], 59)

    assert isinstance(decision, StopAll)
    assert decision.reason.startswith("lanes died 5 times within 60 s")


def test_a_death_long_ago_is_forgotten() -> None:
    assert decide_restart("lanes", [0, 10, 20, 30, 61], 61) == RestartAfter(delay_s=4.0)
    assert decide_restart("lanes", [0, 1, 2, 3, 500], 500) == RestartAfter(delay_s=0.5)
