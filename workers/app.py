"""The Celery app. Settings are read when the configuration is first needed, not at import."""

import sys
from typing import Any

from celery import Celery
from celery.signals import worker_init
from kombu.entity import Queue
from pydantic import ValidationError
from pydantic_settings import SettingsError

from broker_config.celery_config import celery_settings
from broker_config.settings import Settings
from runtime.errors import BadInputError
from workers.reading import Reading
from workers.redis_transport import SCHEMES, use_guarded_transport

NOT_USED = "http://not-used.invalid"
"""For processes that never call the execution API, which then need not be named."""


def load_settings(**overrides: Any) -> Settings:
    """Settings from the environment; raises BadInputError with one line per problem."""
    try:
        return Settings(**overrides)
    except SettingsError as error:
        raise BadInputError(f"settings can't be read: {error}; PLAYLANE_LIMITS is a JSON object") from None
    except ValidationError as error:
        problems = [one for one in error.errors() if one["type"] != "default_factory_not_called"]
        lines = [_problem(problem["loc"], problem["msg"]) for problem in problems]
        raise BadInputError("settings are not complete:\n  " + "\n  ".join([*lines, _WHERE_FROM])) from None


_WHERE_FROM = (
    "set them, or run this in the folder where `playlane up` runs, which has them in .playlane/up/stack.env"
)


def _problem(location: tuple[int | str, ...], message: str) -> str:
    name = "PLAYLANE_" + "_".join(str(part) for part in location).upper()
    if message == "Field required":
        meaning = Settings.model_fields[str(location[0])].description
        return f"{name} is not set ({meaning})"
    return f"{name}: {message}"


def _configuration() -> dict[str, Any]:
    return celery_settings(load_settings(execution_api_url=NOT_USED))


app = Celery(
    "playlane",
    include=["workers.control_tasks", "workers.play_tasks", "workers.row_tasks", "workers.lane_tasks"],
)
app.add_defaults(_configuration)
app.loader.override_backends = dict.fromkeys(SCHEMES, "workers.chord_counts:ChordCounts")


def consume(queues: tuple[str, ...]) -> None:
    """Make this process's worker consume exactly `queues`."""
    worker_init.disconnect(_refuse_foreign_worker)
    use_guarded_transport()
    assert app.steps is not None  # a defaultdict; None in its annotation only
    app.steps["consumer"].add(Reading)
    app.conf.task_queues = [Queue(name, routing_key=name) for name in queues]


@worker_init.connect
def _refuse_foreign_worker(**_: object) -> None:
    """A worker started by Celery's own command has no session, and its queues may mix: it must not consume."""
    sys.stderr.write(
        "error: playlane's workers are started with `playlane worker ROLE` (control, plays, rows or lanes), "
        "not with celery's own command: each needs a session, and lane queues a process of their own\n"
    )
    sys.exit(2)
