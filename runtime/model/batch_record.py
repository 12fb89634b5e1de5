"""A batch record as JSON text: the record is sent again verbatim from it, so its form is versioned."""

from collections.abc import Iterable, Mapping
from typing import Any

from runtime.errors import BadInputError, JsonValueError
from runtime.model import json_value
from runtime.model.lease import BatchRecord, OrphanBatch

VERSION = 1


def to_text(record: BatchRecord) -> bytes:
    """Everything but owner and fences, which change when a batch is adopted."""
    return json_value.dumps(
        {
            "v": VERSION,
            "batch_id": record.batch_id,
            "lane": record.lane,
            "operation": record.operation,
            "strategy": record.strategy,
            "revision": record.revision,
            "members": record.members,
        }
    )


def from_text(text: bytes, *, session_id: str, fences: tuple[int, ...]) -> BatchRecord:
    """The record under its present owner and fences."""
    stored = json_value.loads(text)
    if not isinstance(stored, dict) or stored.get("v") != VERSION:
        raise BadInputError(f"a batch record is not of version {VERSION}; it is left alone until it expires")
    return BatchRecord(
        batch_id=stored["batch_id"],
        session_id=session_id,
        lane=stored["lane"],
        operation=stored["operation"],
        strategy=stored["strategy"],
        revision=stored["revision"],
        members=tuple(stored["members"]),
        fences=fences,
    )


def runs_of(members: Iterable[Mapping[str, Any]]) -> frozenset[str]:
    """Every run that a recorded batch was sent for."""
    return frozenset(
        run_id
        for member in members
        for run_id in (member["run_id"], *(run_id for _inbox, run_id, *_ in member.get("inboxes", ())))
    )


def orphan_of_text(text: bytes) -> OrphanBatch:
    """The same of a stored record; nothing where it can't be read, so it is left until it expires."""
    try:
        members = json_value.loads(text)["members"]
        return OrphanBatch(runs=runs_of(members), members=tuple(members))
    except (JsonValueError, KeyError, TypeError, ValueError):
        return OrphanBatch(runs=frozenset(), members=())
