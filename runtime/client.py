"""Start, watch and cancel runs from any Python process: kombu for messages, Postgres for what is true."""

import secrets
import time
from collections.abc import Iterator
from typing import Any, Self

from runtime.control_sender import ControlSender
from runtime.errors import (
    BadInputError,
    RunNotCompletedError,
    RunWaitExceededError,
    ServiceUnreachableError,
    UnknownRunError,
)
from runtime.model.budget import Caps, RunBudget
from runtime.model.events import RunEvent
from runtime.model.insight import RunInsight
from runtime.model.messages import parse_event, parse_play_run, parse_run_cancel
from runtime.model.run import ENDED_RUNS, RunState
from runtime.model.sample import RunHistory
from runtime.model.status import RowFailure, RunStatus, SheetRow
from runtime.model.stored_row import StoredRow, Stretch
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.redis_store.event_stream import EventStream
from runtime.run_follower import follow
from runtime.run_reader import RunReader


class PlayClient:
    """A sender of runs; safe to use from several threads. Without `database_url` it can only send."""

    def __init__(
        self,
        *,
        redis_url: str,
        database_url: str | None = None,
        org_id: str = "default",
        limits: Limits = DEFAULT_LIMITS,
        broker_url: str | None = None,
    ) -> None:
        """`broker_url`: where messages go, if that isn't Redis."""
        self.org_id = org_id
        self._limits = limits
        self._messages = ControlSender(broker_url or redis_url, limits)
        self._stream = EventStream(redis_url, limits)
        self._database = RunReader(database_url, limits) if database_url else None

    def enqueue(
        self,
        play: str,
        input: Any = None,
        *,
        run_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Start a run and return its id; repeating it with the same `run_id` starts nothing new.

        The run's row is written first, so that a run whose message is lost still starts.
        """
        return self._start(
            {
                "version": 1,
                "run_id": run_id or new_run_id(),
                "org_id": self.org_id,
                "play": play,
                "input": {} if input is None else input,
                "options": options or {},
            }
        )

    def rerun(
        self,
        run_id: str,
        *,
        only: str | None = None,
        as_run_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Start a run of the same play, input and options, with `options` on top; returns its id.

        `only` "failed", "missing" or "stale" runs just the rows that have such cells, and of them just those cells.
        """
        known = self.status(run_id)
        if only is not None and known.state not in ENDED_RUNS:
            raise BadInputError(
                f"run {run_id} is {known.state.value}: what of it failed or is missing is known when it has ended; "
                f"wait for it (playlane watch {run_id}) or cancel it first"
            )
        again = {name: value for name, value in known.options.items() if name not in ("only", "rerun_of")}
        rerun = {"rerun_of": run_id} if only is None else {"rerun_of": run_id, "only": str(only)}
        return self._start(
            {
                "version": 1,
                "run_id": as_run_id or new_run_id(),
                "org_id": known.org_id,
                "play": known.play,
                "input": known.input,
                "options": {**again, **(options or {}), **rerun},
            }
        )

    def _start(self, fields: dict[str, Any]) -> str:
        message = parse_play_run(fields, input_bytes=self._limits.input_bytes)
        if self._database is not None:
            self._database.insert(message.to_run())
        try:
            options = message.options.model_dump(exclude_defaults=True)
            self._messages.send(
                "plays.run", message.model_dump() | {"options": options}, about=message.run_id
            )
        except ServiceUnreachableError as error:
            if self._database is None:
                raise
            raise ServiceUnreachableError(
                f"{error}; run {message.run_id} is stored and starts by itself when Redis is back"
            ) from error
        return message.run_id

    def cancel(self, run_id: str) -> None:
        """Ask for the run's end; what is on the wire is still committed."""
        message = parse_run_cancel({"version": 1, "run_id": run_id})
        self._messages.send("runs.cancel", message.model_dump(), about=run_id)

    def deliver(self, key: str, payload: Any = None, *, event_id: str | None = None) -> str:
        """Tell runs of the org of an event and return its id; repeating it with the same `event_id` tells nothing new.

        With a database it is stored first, so that an event whose message is lost is delivered by a sweep.
        """
        fields = {
            "version": 1,
            "event_id": event_id or f"ev-{secrets.token_hex(12)}",
            "org_id": self.org_id,
            "key": key,
            "payload": payload,
        }
        message = parse_event(fields, payload_bytes=self._limits.event_payload_bytes)
        if self._database is not None:
            self._database.store_event(message.to_event())
        try:
            self._messages.send("events.deliver", message.model_dump(), about=f"event {message.event_id}")
        except ServiceUnreachableError as error:
            if self._database is None:
                raise
            raise ServiceUnreachableError(
                f"{error}; event {message.event_id} is stored and is delivered by itself"
            ) from error
        return message.event_id

    def find(self, run_id: str) -> RunStatus | None:
        """The run as it is now; None if nobody has stored it."""
        return self._reader().status(run_id)

    def status(self, run_id: str) -> RunStatus:
        """The run as it is now; raises UnknownRunError."""
        found = self.find(run_id)
        if found is None:
            raise UnknownRunError(
                f'there is no run "{run_id}": check the id, and that this is the database the run was sent to'
            )
        return found

    def insight(self, status: RunStatus) -> RunInsight:
        """What the counts of a run mean: rates, cost, what holds it up."""
        return self._reader().insight(status)

    def history(self, status: RunStatus) -> RunHistory:
        """What was kept of a run over time."""
        return self._reader().history(status)

    def news(self, run_id: str, after: str) -> list[tuple[str, RunEvent]]:
        """Events beyond the place `after` that are there now, each with its place; "0" is the beginning."""
        return self._stream.read(run_id, after, block=False)

    def wait(self, run_id: str, timeout_s: float, poll_s: float = 0.1) -> RunStatus:
        """The ended run; raises RunWaitExceededError, which leaves the run going on."""
        deadline = time.monotonic() + timeout_s
        while (status := self.status(run_id)).state not in ENDED_RUNS:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                raise RunWaitExceededError(
                    f"run {run_id} is {status.state} after {timeout_s:g} s; it goes on: wait again or cancel it"
                )
            time.sleep(min(poll_s, left_s))
        return status

    def sheet(self, play: str, namespace: str, *, org_id: str | None = None) -> Iterator[SheetRow]:
        """All rows of a sheet of the org in key order, read page by page."""
        after = ""
        while page := self._reader().sheet_page(
            org_id or self.org_id, play, namespace, after, self._limits.client_sheet_rows
        ):
            yield from page
            after = page[-1].row_key

    def budget(self, run_id: str) -> RunBudget | None:
        """What the run may use and has used; None if it has no caps. Raises UnknownRunError."""
        self.status(run_id)
        return self._reader().budget(run_id)

    def change_budget(self, run_id: str, caps: Caps) -> None:
        """New totals where they are given; whoever waits for budget goes on. Raises BadInputError if it has no caps."""
        self.status(run_id)
        if self._reader().change_budget(run_id, caps):
            return
        found = self._reader().budget(run_id)
        if found is None:
            raise BadInputError(
                f"run {run_id} has no caps that could be raised: it was started without any, or has not begun"
            )
        callers = ", ".join(caller.account for caller in found.callers)
        raise BadInputError(f"run {run_id} has no caps of its own: it counts against {callers}; raise those")

    def rows(self, dataset_id: int, *, failed: bool = False) -> Iterator[StoredRow]:
        """A dataset's rows in input order, read page by page, `failed` ones too; none that a newer run has written."""
        after = -1
        while page := self._reader().rows(
            Stretch(dataset_id=dataset_id, after=after, limit=self._limits.handle_page_rows, failed=failed)
        ):
            yield from page
            after = page[-1].position

    def columns(self, dataset_id: int) -> tuple[str, ...]:
        """A dataset's stored columns: of its input, then those that were computed."""
        return self._reader().columns(dataset_id)

    def failures(self, dataset_id: int) -> list[RowFailure]:
        """The first failed rows of a dataset, with their errors."""
        return self._reader().failures(dataset_id)

    def result(self, run_id: str, timeout_s: float) -> Any:
        """What the play returned, once it has; raises RunNotCompletedError or RunWaitExceededError."""
        status = self.wait(run_id, timeout_s)
        if status.state is not RunState.COMPLETED:
            error = status.error or {}
            reason = error.get("message") or "no reason was stored"
            raise RunNotCompletedError(
                f"run {run_id} is {status.state.value}: {reason}", state=status.state.value, error=error
            )
        return status.result

    def events(self, run_id: str) -> Iterator[RunEvent]:
        """What happens in the run, from its beginning to its end, which always comes. Waits for what comes next."""
        return follow(run_id, self._stream, self.status, self._limits)

    def close(self) -> None:
        """Close what was opened; the client opens it again when it is used again."""
        self._messages.close()
        self._stream.close()
        if self._database is not None:
            self._database.close()

    def _reader(self) -> RunReader:
        if self._database is None:
            raise BadInputError(
                "this client has no database to read runs from: make it with PlayClient(database_url=...)"
            )
        return self._database

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def new_run_id() -> str:
    """A fresh run id that sorts by time."""
    return f"run-{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(4)}"
