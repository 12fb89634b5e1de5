"""The high-water mark's decisions, with a consumer that only takes notes."""

from collections.abc import Callable
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from runtime.policy.limits import Limits
from runtime.policy.pacing import GateMove, gate_move
from workers.lane_gate import LaneGate

LIMITS = Limits(lane_high_water=10, lane_low_water=4)


class NotingConsumer:
    """What Celery's consumer is asked for; `timer` runs what is due when told."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.due: list[Callable[[], None]] = []
        self.timer = self
        self.is_broken = False

    def call_after(self, _seconds: float, work: Callable[[], None]) -> None:
        self.due.append(work)

    def cancel_task_queue(self, queue: str) -> None:
        self.asked.append(("cancel", queue))

    def add_task_queue(self, queue: str) -> None:
        if self.is_broken:
            raise ConnectionError("gone")
        self.asked.append(("add", queue))

    def tick(self) -> None:
        due, self.due = self.due, []
        for work in due:
            work()


def gate_of() -> tuple[LaneGate, NotingConsumer]:
    gate, consumer = LaneGate(LIMITS), NotingConsumer()
    gate.serve(consumer)
    return gate, consumer


def arrive(gate: LaneGate, lane: str, calls: int) -> None:
    gate.enter(lane, calls)
    gate.look(lane)


def test_only_the_full_lane_is_paused_and_is_read_again_at_the_low_mark() -> None:
    gate, consumer = gate_of()
    arrive(gate, "b", 9)
    arrive(gate, "a", 5)
    arrive(gate, "a", 5)
    assert consumer.asked == [("cancel", "lane.a")] and gate.paused == {"a"}
    gate.leave("a", 5)
    consumer.tick()
    assert consumer.asked[1:] == [], "not yet"
    gate.leave("a", 1)
    consumer.tick()
    assert consumer.asked[1:] == [("add", "lane.a")] and not gate.paused and not consumer.due


def test_a_new_consumer_reads_paused_queues_again_when_it_is_their_time() -> None:
    gate, old = gate_of()
    arrive(gate, "a", 10)
    new = NotingConsumer()
    gate.serve(new)
    gate.leave("a", 10)
    new.tick()
    assert new.asked == [("add", "lane.a")] and ("add", "lane.a") not in old.asked


def test_a_connection_that_breaks_while_a_queue_is_read_again_is_asked_once_more() -> None:
    gate, consumer = gate_of()
    arrive(gate, "a", 10)
    gate.leave("a", 10)
    consumer.is_broken = True
    with suppress(ConnectionError):
        consumer.tick()
    assert gate.paused == {"a"}
    consumer.is_broken = False
    consumer.tick()
    assert consumer.asked[-1] == ("add", "lane.a") and not gate.paused


@given(st.lists(st.integers(-15, 15), max_size=60))
def test_between_the_marks_nothing_moves(steps: list[int]) -> None:
    held, is_paused = 0, False
    for step in steps:
        held = max(0, held + step)
        move = gate_move(held=held, is_paused=is_paused, limits=LIMITS)
        is_paused = (is_paused or move is GateMove.PAUSE) and move is not GateMove.READ
        assert not (held >= LIMITS.lane_high_water and not is_paused)
        assert not (held <= LIMITS.lane_low_water and is_paused)
