"""A call: one logical tool call of a row or a body, and its answer."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from runtime.model.query_page import QueryPage


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepts:
    """From which moment on (ms, by the database's clock) a stored receipt answers a call; None = of any age."""

    not_before_ms: int | None = None  # completed
    failed_not_before_ms: int | None = None  # failed for good


ANY_AGE = Accepts()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What a lane needs to make one call. `key` is its receipt key; equal keys are one call."""

    key: str
    org_id: str
    run_id: str
    tool: str
    input: Any
    idempotency_key: str  # the provider's item key: leaves out revision, lease and attempt
    inbox: str  # session that waits for the answer
    integration_mode: str | None = None
    accepts: Accepts = ANY_AGE
    read_keys: tuple[str, ...] = ()  # receipts of older action versions that may answer, newest first
    shared_key: str | None = None  # of a forced call, whose own key is private: its result goes there too
    auth_scope: str | None = None  # digest of the credentials that the key stands for
    timeout_ms: float | None = None  # the author's, at most the tool's own
    page: QueryPage | None = None  # of the tool's result, where it is one of many rows
    accounts: tuple[str, ...] = ()  # budgets that must have room for it; none of a run without caps
    node: tuple[
        str, ...
    ] = ()  # where its play asks: the author's id, and in a row column and table namespace

    @property
    def lookup_keys(self) -> tuple[str, ...]:
        """Receipts that may answer, in the order in which they are asked."""
        return (self.key, *self.read_keys)


class AnswerState(StrEnum):
    COMPLETED = "completed"
    FAILED = "failed"
    UNKNOWN = "unknown"
    STORED = "stored"  # too large to travel: read the receipt
    RETURNED = "returned"  # not made; post it again
    TRY_LATER = "try_later"  # not made; its turn is far away, ask again after `until_ms`
    OVER_BUDGET = "over_budget"  # not made; a budget has no room, for `until_ms` at most


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a lane says of one call. `output` is JSON text; `error` a ToolCallError payload."""

    key: str
    state: AnswerState
    output: bytes | None = None
    error: dict[str, Any] | None = None
    cached: bool = False  # answered by a receipt, nothing was sent for it
    run_id: str | None = None  # that produced it; None = it is for whoever waits
    produced_ms: int | None = None  # of the receipt that answers; None = just now
    terminal: bool = False  # a failure that is final for every run
    followed: bool = False  # joined a call that this process already waited for
    until_ms: float | None = None  # from now, of an answer to try later


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one commit sent on behalf of one run and tool. `capacity` = batches x max batch size."""

    run_id: str
    tool: str
    items: int = 0
    batches: int = 0
    capacity: int = 0
    cached: int = 0
    followed: int = 0
    credits: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Post:
    """Calls sent to a lane in one message."""

    post_id: str
    lane: str
    calls: tuple[Call, ...] = field(default=())
