"""What a tool answered, as the bytes that its receipt keeps and every caller is served.

The first line is the JSON text of the data. Where the response held more, a second line says what. Compact JSON
text holds no line feed, so no data can look like the second line.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from runtime.errors import JsonValueError
from runtime.model import json_value
from runtime.model.outcome import ItemCompleted, ItemOutcome

COMPLETED = "completed"
NO_RESULT = "no_result"
UNSTORABLE = "unstorable"  # stands where a part of the response beside the data could not be kept
_LINE = b"\n"


class Origin(StrEnum):
    """How an answer came to its caller."""

    LIVE = "live"  # asked of the provider for this caller
    IN_FLIGHT = "in_flight"  # joined a call that was on its way
    CACHE = "cache"  # a receipt of another run
    CHECKPOINT = "checkpoint"  # a receipt of this run, from before a restart


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseEnvelope:
    """A response beside its data. `rest`: the raw response's other fields; `is_raw`: the data is the whole of it."""

    status: str = COMPLETED
    job_id: str | None = None
    is_raw: bool = False
    rest: dict[str, Any] = field(default_factory=dict, repr=False)
    meta: dict[str, Any] = field(default_factory=dict, repr=False)

    def for_item(self) -> "ResponseEnvelope":
        """What of a batch's response belongs to each of its items: its meta alone."""
        return ResponseEnvelope(meta=self.meta)

    def storable(self, max_meta_bytes: int) -> "ResponseEnvelope":
        """The same, where a part that can't be kept is replaced by the reason; the paid data is kept anyway."""
        return replace(
            self,
            status=_storable_text(self.status),
            job_id=None if self.job_id is None else _storable_text(self.job_id),
            rest=_storable(self.rest, "$", None),
            meta=_storable(self.meta, "$.meta", max_meta_bytes),
        )

    def to_json(self) -> dict[str, Any]:
        """What differs from a plain completed response; empty if nothing does."""
        parts = {
            "status": None if self.status == COMPLETED else self.status,
            "job_id": self.job_id,
            "is_raw": self.is_raw,
            "rest": self.rest,
            "meta": self.meta,
        }
        return {name: part for name, part in parts.items() if part}

    @classmethod
    def of(cls, stored: dict[str, Any]) -> "ResponseEnvelope":
        return cls(
            status=stored.get("status", COMPLETED),
            job_id=stored.get("job_id"),
            is_raw=stored.get("is_raw", False),
            rest=stored.get("rest", {}),
            meta=stored.get("meta", {}),
        )


def second_line(envelope: ResponseEnvelope) -> bytes:
    """What to append to the text of the data; empty for a response that holds nothing else."""
    more = envelope.to_json()
    return _LINE + json_value.dumps(more) if more else b""


def data_text(output: bytes) -> bytes:
    """JSON text of the data."""
    return output.partition(_LINE)[0]


def envelope_of(output: bytes) -> ResponseEnvelope:
    """The response beside its data."""
    more = output.partition(_LINE)[2]
    return ResponseEnvelope.of(json_value.loads(more)) if more else ResponseEnvelope()


def _storable_text(text: str) -> str:
    try:
        return json_value.check(text)
    except JsonValueError:
        return UNSTORABLE


def _storable(part: dict[str, Any], path: str, max_bytes: int | None) -> dict[str, Any]:
    if not part:
        return part
    try:
        json_value.check(part, path=path)
    except JsonValueError as error:
        return {UNSTORABLE: str(error)}
    if max_bytes is not None and (size := len(json_value.dumps(part))) > max_bytes:
        return {UNSTORABLE: f"{path}: {size} bytes of JSON, more than the {max_bytes} that are kept"}
    return part


def with_envelope(
    outcomes: Sequence[ItemOutcome], envelope: ResponseEnvelope, *, is_single: bool, max_meta_bytes: int
) -> tuple[ItemOutcome, ...]:
    """The same outcomes, where each completed one also keeps what of the response is its own."""
    own = envelope if is_single else envelope.for_item()
    more = second_line(own.storable(max_meta_bytes))
    if not more:
        return tuple(outcomes)
    return tuple(
        replace(outcome, output_json=outcome.output_json + more)
        if isinstance(outcome, ItemCompleted)
        else outcome
        for outcome in outcomes
    )
