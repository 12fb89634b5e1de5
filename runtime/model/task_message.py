"""A Celery task message (protocol 2) as plain values, for senders without Celery."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskMessage:
    """What a publisher hands to kombu: body (JSON), headers and properties."""

    body: tuple[list[Any], dict[str, Any], dict[str, Any]]
    headers: dict[str, Any]
    properties: dict[str, Any]


def task_message(
    task: str, kwargs: dict[str, Any], *, task_id: str, origin: str, kwargsrepr: str
) -> TaskMessage:
    """The message that starts `task` once with `kwargs`; `kwargsrepr` is all that monitors see of them."""
    headers = {
        "lang": "py",
        "task": task,
        "id": task_id,
        "shadow": None,
        "eta": None,
        "expires": None,
        "group": None,
        "group_index": None,
        "retries": 0,
        "timelimit": [None, None],
        "root_id": task_id,
        "parent_id": None,
        "argsrepr": "()",
        "kwargsrepr": kwargsrepr,
        "origin": origin,
        "ignore_result": True,
        "replaced_task_nesting": 0,
        "stamped_headers": None,
        "stamps": {},
    }
    embed = {"callbacks": None, "errbacks": None, "chain": None, "chord": None}
    return TaskMessage(
        body=([], kwargs, embed),
        headers=headers,
        properties={"correlation_id": task_id, "reply_to": "", "delivery_mode": 2},
    )
