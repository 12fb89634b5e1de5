"""Roles, queues and routes (pure). A process consumes lane queues or task queues, never both."""

from collections.abc import Sequence

from broker_config.lanes import LANES, Lane

CONTROL, PLAYS, ROWS = "control", "plays", "rows"
LANE_PREFIX = "lane."
ROLES = ("control", "plays", "rows", "lanes")

ROUTES = {
    "plays.run": {"queue": CONTROL},
    "runs.cancel": {"queue": CONTROL},
    "events.deliver": {"queue": CONTROL},
    "datasets.settle_page": {"queue": CONTROL},
    "plays.resume": {"queue": PLAYS},
    "rows.run_slice": {"queue": ROWS},
}


class MixedQueuesError(ValueError):
    """Lane and task queues in one process: full slices would stop the lanes that they wait for."""


def lane_queue(provider: str) -> str:
    """`lane.<provider>`."""
    return f"{LANE_PREFIX}{provider}"


def queues_of_role(role: str, lanes: Sequence[str] = (), table: Sequence[Lane] = LANES) -> tuple[str, ...]:
    """The queues that a worker of `role` consumes; lane workers take all lanes unless told otherwise."""
    if role == "lanes":
        return tuple(lane_queue(name) for name in (lanes or [lane.provider for lane in table]))
    if role not in ROLES:
        raise ValueError(f"unknown role {role!r}: one of {', '.join(ROLES)}")
    return (role,)


def refuse_mixed(queues: Sequence[str]) -> None:
    """Raise MixedQueuesError if lane and task queues are to be consumed by one process."""
    lanes = [name for name in queues if name.startswith(LANE_PREFIX)]
    tasks = [name for name in queues if not name.startswith(LANE_PREFIX)]
    if lanes and tasks:
        raise MixedQueuesError(
            f"a process can't consume lane queues ({', '.join(lanes)}) and task queues ({', '.join(tasks)}): "
            "start one worker for the lanes and another for the tasks"
        )
    if CONTROL in tasks and len(tasks) > 1:
        raise MixedQueuesError("the control queue needs a process of its own")
