"""The lane task: a post. It never runs in the pool: its Strategy hands it to the lane engine."""

from typing import Any, NoReturn

from celery import Task

from workers.app import app


class LaneTask(Task):
    """A task whose messages go to the coalescer instead of a pool."""

    Strategy = "workers.lane_strategy:hand_to_lane"


@app.task(name="lanes.execute", base=LaneTask, ignore_result=True)
def execute_post(post: dict[str, Any]) -> NoReturn:
    """Post (message v1) of calls for one lane."""
    raise RuntimeError("lanes.execute runs in lane workers only: start one with `playlane worker lanes`")
