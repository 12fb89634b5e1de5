"""Messages from other services, version 1."""

from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from runtime.errors import BadInputError
from runtime.model import json_value
from runtime.model.boundary import Event
from runtime.model.budget import MOST
from runtime.model.run import NewRun

M = TypeVar("M", bound=BaseModel)

ID_CHARS = 200
PLAY_CHARS = 100
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.:-]{0,199}$"


class RunOptions(BaseModel):
    """Options of a run; unknown ones are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    integration_mode: Literal["live", "fixture"] | None = None
    refresh_tools: StrictBool = False  # results from before the run don't answer its tool calls
    refresh_failed: StrictBool = False  # nor do final failures from before the run
    only: Literal["failed", "missing", "stale"] | None = None  # a rerun: which stored cells are run again
    rerun_of: str | None = Field(default=None, pattern=NAME)  # the run whose play and input it repeats
    refresh_steps: StrictBool = False  # nor do results of steps and fetches
    deadline_s: float | None = Field(default=None, gt=0, allow_inf_nan=False, strict=True)  # of active time
    capture: StrictBool = False  # keep where cells come from, and what nodes observe
    # what the run, child plays included, may use; where one is given it replaces the play's own, down or up
    max_credits: float | None = Field(default=None, ge=0, le=MOST, allow_inf_nan=False, strict=True)
    max_tool_calls: int | None = Field(default=None, ge=0, le=MOST, strict=True)
    max_retries: int | None = Field(default=None, ge=0, le=MOST, strict=True)
    max_child_plays: int | None = Field(default=None, ge=0, le=MOST, strict=True)
    max_depth: int | None = Field(default=None, ge=0, le=MOST, strict=True)


class PlayRunMessage(BaseModel):
    """`plays.run` v1: idempotent by `run_id`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    run_id: str = Field(pattern=NAME)
    org_id: str = Field(default="default", pattern=NAME)
    play: str = Field(min_length=1, max_length=PLAY_CHARS)
    input: Any = Field(default_factory=dict)
    options: RunOptions = Field(default_factory=RunOptions)

    def to_run(self) -> NewRun:
        """The run to store."""
        return NewRun(
            run_id=self.run_id,
            org_id=self.org_id,
            play=self.play,
            input=self.input,
            options=self.options.model_dump(exclude_none=True, exclude_defaults=True),
        )


class RunCancelMessage(BaseModel):
    """`runs.cancel` v1."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    run_id: str = Field(pattern=NAME)


class EventMessage(BaseModel):
    """`events.deliver` v1: idempotent by `event_id`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    version: Literal[1] = 1
    event_id: str = Field(min_length=1, max_length=200)
    org_id: str = Field(default="default", pattern=NAME)
    key: str = Field(min_length=1, max_length=200)
    payload: Any = None

    def to_event(self) -> Event:
        """The event to deliver."""
        return Event(org_id=self.org_id, event_id=self.event_id, key=self.key, payload=self.payload)


def parse_play_run(fields: dict[str, Any], *, input_bytes: int) -> PlayRunMessage:
    """The message, checked; raises BadInputError that names every wrong field."""
    message = _parse(PlayRunMessage, fields)
    for name in ("play", "input"):
        json_value.check(getattr(message, name), path=f"$.{name}")
    size = len(json_value.dumps(message.input))
    if size > input_bytes:
        raise BadInputError(
            f"input is {size} bytes, more than {input_bytes}: pass a reference to the data instead"
        )
    return message


def parse_run_cancel(fields: dict[str, Any]) -> RunCancelMessage:
    """The message, checked; raises BadInputError."""
    return _parse(RunCancelMessage, fields)


def parse_event(fields: dict[str, Any], *, payload_bytes: int) -> EventMessage:
    """The message, checked; raises BadInputError that names every wrong field."""
    message = _parse(EventMessage, fields)
    for name in ("event_id", "key"):
        json_value.check(getattr(message, name), path=f"$.{name}")
    json_value.check(message.payload, path="$.payload")
    size = len(json_value.dumps(message.payload))
    if size > payload_bytes:
        raise BadInputError(
            f"payload is {size} bytes, more than {payload_bytes}: pass a reference to the data instead"
        )
    return message


def refused_run(fields: dict[str, Any]) -> NewRun | None:
    """The run that a message which can't be taken would have started, as far as it says; None if it names none."""
    run_id = fields.get("run_id")
    if not isinstance(run_id, str) or not run_id:
        return None
    return NewRun(
        run_id=printable(run_id)[:ID_CHARS],
        org_id=printable(str(fields.get("org_id") or "default"))[:ID_CHARS],
        play=printable(str(fields.get("play")))[:PLAY_CHARS],
        input=None,
    )


def printable(value: Any) -> Any:
    """The value with a mark for each character that no database takes."""
    if isinstance(value, dict):
        return {name: printable(item) for name, item in value.items()}
    if isinstance(value, str):
        return value.replace("\x00", "\ufffd").encode("utf-8", "replace").decode()
    return value


def _parse(kind: type[M], fields: dict[str, Any]) -> M:
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(str(part) for part in problem['loc']) or 'message'}: {problem['msg']}"
            for problem in error.errors()
        )
        raise BadInputError(f"{kind.__name__} refused: {problems}") from None
