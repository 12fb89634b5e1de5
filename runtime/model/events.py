"""What people and services see of a run while it goes on, version 1. Postgres tells the truth; these tell it early."""

from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from runtime.errors import BadInputError
from runtime.model import json_value

VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """A worker runs the body; `attempt` counts how often one began."""

    play: str
    attempt: int
    type: Literal["run.started"] = "run.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSuspended:
    """The body only waits, and holds no slot."""

    attempt: int
    type: Literal["run.suspended"] = "run.suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded:
    """The last event of a run. A result too large to travel is left out (`is_whole` false): read it in Postgres."""

    state: str
    result: Any = None
    error: dict[str, Any] | None = None
    is_whole: bool = True
    type: Literal["run.ended"] = "run.ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetChanged:
    """A dataset came into another state: seeding, running (all rows are known), settled, failed, cancelled."""

    dataset: str
    state: str
    type: Literal["dataset.changed"] = "dataset.changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapStarted:
    dataset: str
    columns: tuple[str, ...]
    type: Literal["map.started"] = "map.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapProgress:
    """Rows of a dataset that ended with one write of one worker: add them up, or read totals in Postgres."""

    dataset: str
    completed: int = 0
    failed: int = 0
    cancelled: int = 0
    type: Literal["map.progress"] = "map.progress"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildPlaysEnded:
    """Child plays that ended inside the rows of one write, or inside an operation of the body: add them up."""

    ok: int = 0
    failed: int = 0
    type: Literal["children.ended"] = "children.ended"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapSuspended:
    """Rows that wait for a sleep, an event, their lane or budget; they hold nothing."""

    dataset: str
    rows: int
    type: Literal["map.suspended"] = "map.suspended"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapCompleted:
    dataset: str
    rows: int
    completed: int
    failed: int
    cancelled: int = 0
    type: Literal["map.completed"] = "map.completed"


@dataclass(frozen=True, slots=True, kw_only=True)
class MapFailed:
    """Every row failed, or one did under `on_row_error="fail"`."""

    dataset: str
    rows: int
    completed: int
    failed: int
    cancelled: int = 0
    type: Literal["map.failed"] = "map.failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RowUpdated:
    """A sample of the rows that ended; failed ones come first."""

    dataset: str
    row_key: str
    state: str
    error: str | None = None
    type: Literal["map.row.updated"] = "map.row.updated"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallStarted:
    """One request left, with so many of the run's calls in it."""

    tool: str
    lane: str
    calls: int
    type: Literal["tool.call.started"] = "tool.call.started"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallSettled:
    """The outcomes of the run's calls in one request are stored."""

    tool: str
    lane: str
    completed: int = 0
    failed: int = 0
    unknown: int = 0
    duration_ms: int = 0
    type: Literal["tool.call.settled"] = "tool.call.settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneActivity:
    """A lane that the run waits for: a request is sent again, or the provider asked for a pause."""

    lane: str
    tool: str
    state: Literal["retrying", "closed"]
    reason: str
    until_ms: int
    attempt: int
    type: Literal["activity.observed"] = "activity.observed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Logged:
    scope: str
    level: str
    message: str
    fields: dict[str, Any] = field(default_factory=dict)
    type: Literal["log"] = "log"


Event = (
    RunStarted
    | RunSuspended
    | RunEnded
    | DatasetChanged
    | MapStarted
    | MapProgress
    | ChildPlaysEnded
    | MapSuspended
    | MapCompleted
    | MapFailed
    | RowUpdated
    | ToolCallStarted
    | ToolCallSettled
    | LaneActivity
    | Logged
)
TYPES = tuple(kind.__dataclass_fields__["type"].default for kind in get_args(Event))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One event as it travels."""

    run_id: str
    at_ms: int
    event: Annotated[Event, Field(discriminator="type")]
    version: Literal[1] = 1

    @property
    def is_last(self) -> bool:
        return isinstance(self.event, RunEnded)


wire: TypeAdapter[RunEvent] = TypeAdapter(RunEvent)


def to_text(run_id: str, at_ms: int, event: Event) -> bytes:
    """The event as JSON."""
    return json_value.dumps({"version": VERSION, "run_id": run_id, "at_ms": at_ms, "event": asdict(event)})


def from_text(text: bytes | str) -> RunEvent:
    """The event of a JSON text; raises BadInputError for one of another version."""
    try:
        return wire.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInputError(
            f"event not understood at {'.'.join(map(str, first['loc']))}: {first['msg']}; it is of another release"
        ) from None
