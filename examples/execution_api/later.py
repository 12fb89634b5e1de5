"""Tools of the reference API whose answer comes later: one asks a person, one starts a job."""

import time
from typing import Any

from examples.execution_api.tools import ItemError

MOST_S = 60.0


def ask_person(input: dict[str, Any]) -> Any:
    """Never executed: an event brings the answer."""
    raise ItemError("event_wait", "this tool is asked through its event-wait path")


def slow_echo(input: dict[str, Any]) -> dict[str, Any]:
    """Starts a job that takes `seconds`; its id says when it is done and what it gives."""
    item, seconds = input.get("item"), input.get("seconds", 0.5)
    if not isinstance(item, str) or not isinstance(seconds, (int, float)) or not 0 <= seconds <= MOST_S:
        raise ItemError("bad_item", f"item must be text, seconds a number from 0 to {MOST_S:g}")
    return {"job_id": f"{time.time() + seconds:.3f}:{item}", "status": "queued"}


def slow_echo_status(input: dict[str, Any]) -> dict[str, Any]:
    """How the job stands; `value` once it is done."""
    done_at, _, item = str(input.get("job_id")).partition(":")
    try:
        is_done = time.time() >= float(done_at)
    except ValueError:
        raise ItemError("bad_job", f"there is no job {input.get('job_id')!r:.80}") from None
    return {"status": "done", "value": "v:" + item} if is_done else {"status": "running"}


def event_boundary(tool: str, body: dict[str, Any]) -> dict[str, Any]:
    """The boundary of an event wait: the key is the question's, so that whoever answers knows it."""
    payload = body.get("payload")
    question = payload.get("question") if isinstance(payload, dict) else None
    if not isinstance(question, str) or not question:
        raise ItemError("bad_question", "question must be text")
    known = body.get("boundary")
    return {
        **(known if isinstance(known, dict) else {}),
        "boundaryId": f"{tool}:{question}",
        "eventKey": f"{tool}:{question}",
        "timeoutMs": 600_000,
        "provider": "people",
        "toolId": tool,
        "timeoutPolicy": {"finalizeOnTimeout": True},
    }
