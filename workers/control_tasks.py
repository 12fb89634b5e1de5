"""Control tasks: validate, one transaction, publish what follows. Late ack: a killed worker's message returns."""

from typing import Any

import structlog

from runtime.errors import BadInputError, UnknownPlayError
from runtime.model.messages import parse_event, parse_play_run, parse_run_cancel, printable, refused_run
from workers.app import app
from workers.wiring import process

log = structlog.get_logger()
_LATE = {"acks_late": True, "reject_on_worker_lost": True}


@app.task(name="plays.run", **_LATE)
def run_play(**fields: Any) -> None:
    """Admit a run (message v1). A refused message ends a new run as failed and touches no existing one."""
    control = process().control
    try:
        message = parse_play_run(fields, input_bytes=control.limits.input_bytes)
        control.plays.find(message.play)
    except (BadInputError, UnknownPlayError) as error:
        _refuse(fields, error)
        return
    process().call(control.admit(message.to_run()))


@app.task(name="runs.cancel", **_LATE)
def cancel_run(**fields: Any) -> None:
    """End a run as cancelled, whoever holds it."""
    try:
        message = parse_run_cancel(fields)
    except BadInputError as error:
        log.error("message refused", action="runs.cancel", error=str(error))
        return
    process().call(process().control.cancel(message.run_id))


@app.task(name="events.deliver", **_LATE)
def deliver_event(**fields: Any) -> None:
    """Wake who waits for an event (message v1); a refused message wakes nobody."""
    try:
        message = parse_event(fields, payload_bytes=process().limits.event_payload_bytes)
    except BadInputError as error:
        log.error("message refused", action="events.deliver", error=str(error))
        return
    process().call(process().events.deliver(message.to_event()))


@app.task(name="datasets.settle_page", **_LATE)
def settle_page(run_id: str, dataset_id: int, page: int) -> None:
    """The chord's body: only a hint, the tables decide."""
    process().call(process().settling.settle(run_id, dataset_id, page))


def _refuse(fields: dict[str, Any], error: BadInputError) -> None:
    log.error("message refused", action="plays.run", error=str(error), run_id=str(fields.get("run_id"))[:200])
    refused = refused_run(fields)
    if refused is not None:
        process().call(process().control.refuse(refused, printable(error.to_payload())))
