"""Start, watch and cancel runs from any Python process: kombu for messages, Postgres for what is true."""

import secrets
import time
from collections.abc import Iterator
from typing import Any, Self

from runtime.control_sender import ControlSender
from runtime.errors import BadInputError, RunWaitExceededError, ServiceUnreachableError, UnknownRunError
from runtime.model.messages import parse_play_run, parse_run_cancel
from runtime.model.run import ENDED_RUNS
from runtime.model.status import RowFailure, RunStatus, SheetRow
from runtime.policy.limits import DEFAULT_LIMITS, Limits
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
    ) -> None:
        self.org_id = org_id
        self._limits = limits
        self._messages = ControlSender(redis_url, limits)
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
        fields = {
            "version": 1,
            "run_id": run_id or new_run_id(),
            "org_id": self.org_id,
            "play": play,
            "input": {} if input is None else input,
            "options": options or {},
        }
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

    def failures(self, dataset_id: int) -> list[RowFailure]:
        """The first failed rows of a dataset, with their errors."""
        return self._reader().failures(dataset_id)

    def close(self) -> None:
        """Close what was opened; the client opens it again when it is used again."""
        self._messages.close()
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
