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
    "lanes": ("lane.after_admit", "lane.after_seal", "lane.after_answer", "lane.after_commit"),
    "rows": (
        "rows.after_take",
        "rows.before_flush",
        "rows.after_flush",
        "settle.after_settle",
        "settle.after_claim",
    ),
    "plays": ("body.before_journal", "body.after_journal", "body.after_seed_page"),
    "control": ("control.after_insert", "settle.after_settle", "settle.after_claim"),
}


@pytest.mark.parametrize(("role", "points"), POINTS.items(), ids=POINTS)
def test_a_death_at_each_named_point_costs_nothing(
    stack: StackUnderTest, role: str, points: Sequence[str]
) -> None:
    """One life after another of the only worker of a role dies at one point each, in one run: after an answer and
    before its commit, after the commit and before the reply, before and after a write of rows, of the journal, of a
    page. Whoever comes next finds either nothing done or all of it, never half; nothing is paid a second time."""
    stack.latency_ms(100)
    faults = [f"{point}=kill@{1 if point == 'control.after_insert' else 2}" for point in points]
    run = stack.die_at_each(role, faults, lambda: stack.start(100))
    stack.check(run)
