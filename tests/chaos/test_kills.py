"""kill -9 of every process, anywhere and at the named points between answer, commit and reply."""

from collections.abc import Sequence

import pytest

from tests.chaos.stack_under_test import StackUnderTest


def test_kill_9_of_each_process_in_turn_delays_the_run_and_costs_nothing(stack: StackUnderTest) -> None:
    """The only row worker, then the only lane, play and control worker die in the middle of one run. Each comes back
    under a new session, waits out the old one's claims, and the provider is paid once for every item."""
    stack.latency_ms(250)
    run = stack.start(120)
    for role, rows in (("rows", 5), ("lanes", 30), ("plays", 50), ("control", 60)):
        stack.until_rows(run, rows)
        stack.until_restarted(role, stack.kill(role))
    stack.check(run)


POINTS = {
    "lanes": ("lane.after_admit@2", "lane.after_seal@2", "lane.after_answer@2", "lane.after_commit@2"),
    "rows": (
        "settle.after_claim@1",
        "settle.after_settle@1",
        "rows.after_take@2",
        "rows.before_flush@2",
        "rows.after_flush@2",
    ),
    "plays": (
        "settle.after_claim@1",
        "body.after_seed_page@2",
        "body.before_journal@1",
        "body.after_journal@1",
    ),
    "control": ("control.after_insert@1", "settle.after_settle@1"),
}


@pytest.mark.parametrize(("role", "points"), POINTS.items(), ids=POINTS)
def test_a_death_at_each_named_point_costs_nothing(
    stack: StackUnderTest, role: str, points: Sequence[str]
) -> None:
    """One life after another of the only worker of a role dies at one point each, in one run: after an answer and
    before its commit, after the commit and before the reply, before and after a write of rows, of the journal, of a
    page. Whoever comes next finds either nothing done or all of it, never half; nothing is paid a second time."""
    stack.latency_ms(100)
    faults = [point.replace("@", "=kill@") for point in points]
    stack.check(stack.die_at_each(role, faults, lambda: stack.start(100)))


@pytest.mark.timeout(240)
def test_control_dies_with_pages_claimed_and_not_sent(stack: StackUnderTest) -> None:
    """Row workers nearly always claim the next pages first, so control is asked for every page all the time until it
    was first once. The pages that it claimed and never sent go out by a sweep."""
    stack.latency_ms(100)
    control = stack.begin_life("control", "settle.after_claim=kill@1")
    runs = []
    while stack.pid("control") == control:
        runs.append(stack.start(100))
        with stack.describing(runs[-1]), stack.sender() as send:
            stack.until(
                lambda: stack.pid("control") != control or stack.ask_to_settle(runs[-1], send), "an end"
            )
        assert len(runs) < 15, "control never claimed a page"
    for run in runs:
        stack.check(run)
