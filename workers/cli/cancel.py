"""`playlane cancel RUN`."""

import time

import typer

from runtime.client import PlayClient
from runtime.model.run import ENDED_RUNS, RunState
from runtime.policy.limits import DEFAULT_LIMITS
from workers.cli.connection import connect
from workers.cli.options import AsJson, RunId
from workers.cli.terminal import FAILED, OK, say, say_json


def cancel(run_id: RunId, as_json: AsJson = False) -> None:
    """End a run as cancelled; what is on the wire is still committed."""
    with connect() as client:
        before = client.status(run_id).state
        state = before if before in ENDED_RUNS else cancelled_within(client, run_id)
    if as_json:
        say_json({"run_id": run_id, "state": state.value})
    else:
        say(outcome(run_id, before, state))
    raise typer.Exit(OK if state is RunState.CANCELLED else FAILED)


def cancelled_within(
    client: PlayClient, run_id: str, wait_s: float = DEFAULT_LIMITS.cancel_wait_s
) -> RunState:
    """Ask for the end and wait a little to see it; the run's state then."""
    client.cancel(run_id)
    deadline = time.monotonic() + wait_s
    state = client.status(run_id).state
    while state not in ENDED_RUNS and time.monotonic() < deadline:
        time.sleep(DEFAULT_LIMITS.watch_poll_s)
        state = client.status(run_id).state
    return state


def outcome(run_id: str, before: RunState, state: RunState) -> str:
    """What became of the wish, in plain words."""
    if before in ENDED_RUNS:
        return f"{run_id} had ended already as {before.value}: there was nothing to cancel"
    if state is RunState.CANCELLED:
        return f"{run_id} is cancelled"
    if state in ENDED_RUNS:
        return f"{run_id} ended as {state.value} before the cancel reached it"
    return f"{run_id} is still {state.value}: the cancel is sent; see that a control worker is running"
