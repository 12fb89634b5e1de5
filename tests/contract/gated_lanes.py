"""A Celery app whose lane posts stay in hand until a test lets them go."""

from collections import Counter
from collections.abc import Callable
from typing import Any

from celery import Celery, Task
from kombu.entity import Queue

from runtime.policy.limits import Limits
from workers.lane_gate import LaneGate

CALLS = 5  # of every post
LIMITS = Limits(lane_high_water=20, lane_low_water=10)


class Hold:
    """What the strategy got: posts by lane."""

    def __init__(self) -> None:
        self.gate = LaneGate(LIMITS)
        self.got: Counter[str] = Counter()
        self.in_hand: list[tuple[str, str]] = []
        self.consumers = 0

    def let_go(self, lane: str) -> None:
        """All of the lane's posts are done."""
        for held in [held for held in self.in_hand if held[0] == lane]:
            self.in_hand.remove(held)
            self.gate.leave(lane, CALLS)


hold = Hold()


def hold_posts(task: Any, app: Any, consumer: Any, **_: Any) -> Callable[..., None]:
    hold.gate.serve(consumer)
    hold.consumers += 1

    def on_message(message: Any, body: Any, ack: Any, reject: Any, callbacks: Any, **_: Any) -> None:
        ack(None, consumer.connection_errors)
        lane, post = message.decode()[1]["post"]
        hold.got[post] += 1
        hold.in_hand.append((lane, post))
        hold.gate.enter(lane, CALLS)
        hold.gate.look(lane)

    return on_message


class HeldTask(Task):
    Strategy = "tests.contract.gated_lanes:hold_posts"


def app_of(redis_url: str) -> Celery:
    app = Celery("gated", broker=redis_url, set_as_current=False)
    app.conf.update(
        task_queues=[Queue("lane.a", routing_key="lane.a"), Queue("lane.b", routing_key="lane.b")],
        worker_prefetch_multiplier=64,
        broker_connection_retry_on_startup=True,
        worker_cancel_long_running_tasks_on_connection_loss=False,
        task_ignore_result=True,
    )

    @app.task(name="lanes.held", base=HeldTask, ignore_result=True)
    def held(post: Any) -> None:
        raise AssertionError("never runs in the pool")

    return app
