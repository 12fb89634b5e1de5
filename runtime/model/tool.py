"""A tool as its provider declares it."""

from dataclasses import dataclass, field
from enum import StrEnum

from runtime.model.result_rules import ResultRules
from runtime.model.waiting_tool import EventRule, PollRule


class Counts(StrEnum):
    REQUESTS = "requests"
    ITEMS = "items"


class Normalise(StrEnum):
    TRIM = "trim"  # blanks around the text
    LOWER = "lower"  # case folded
    STRIP_TRAILING_DOT = "strip_trailing_dot"


@dataclass(frozen=True, slots=True, kw_only=True)
class PacingRule:
    """At most `limit` of what is counted in any `per_ms`, plus `burst` saved up; one rule of several."""

    limit: float
    per_ms: float
    counts: Counts = Counts.REQUESTS
    burst: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRule:
    """How many calls of a tool travel in one request of `operation`.

    `input_key` names the field that carries an item's matching key there and back; None = by position.
    """

    operation: str
    max_batch_size: int
    items_field: str = "items"
    input_key: str | None = "key"
    reply_items_field: str = "items"
    bucket_fields: tuple[str, ...] = ()  # inputs that differ here never share a batch
    strategy: str = "keyed"
    revision: str = "1"


@dataclass(frozen=True, slots=True, kw_only=True)
class NormaliseRule:
    field: str
    steps: tuple[Normalise, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolMetadata:
    tool: str
    provider: str
    action_version: str = "1"
    read_versions: tuple[str, ...] = ()  # older action versions whose receipts may be read
    response_revision: str | None = None
    timeout_ms: float | None = None
    credits_per_item: float = 0.0
    credits_at_most: float | None = None  # what a budget reserves for a call; None = `credits_per_item`
    batch: BatchRule | None = None
    pacing: tuple[PacingRule, ...] = ()
    concurrency: int | None = None  # requests on the wire at once, fleet wide
    normalise: tuple[NormaliseRule, ...] = field(default=())
    transient_http_retry_safe: bool = False
    requires_execution_fence: bool = False
    always_fresh: bool = False  # no stored result answers; a call is replayed from a receipt of its own
    event: EventRule | None = None  # an event brings its answer
    poll: PollRule | None = None  # it starts something that another tool asks after
    results: ResultRules = field(default_factory=ResultRules)  # where things lie in its results
