"""Usage of runs, and child plays that ended in their rows, added in the writer's transaction."""

import uuid
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from runtime.model.call import Usage
from runtime.model.row import FinishedRow
from runtime.postgres_store.named import load

ADD_USAGE = load("flush")["add_usage"]
ADD_CHILDREN = load("children")["add"]


def usage_arrays(session_id: str, usage: Sequence[Usage]) -> dict[str, Any]:
    """Parameters of `add_usage`; made once per write, so that its repetition is known."""
    return {
        "session_id": session_id,
        "write_id": uuid.uuid4().hex,
        "usage_run_ids": [one.run_id for one in usage],
        "tools": [one.tool for one in usage],
        "items": [one.items for one in usage],
        "batches": [one.batches for one in usage],
        "capacities": [one.capacity for one in usage],
        "cached": [one.cached for one in usage],
        "followed": [one.followed for one in usage],
        "credits": [float(one.credits) for one in usage],
    }


def child_arrays(session_id: str, rows: Iterable[tuple[int, FinishedRow]]) -> dict[str, Any] | None:
    """Parameters of `ADD_CHILDREN`, of rows that end in this transaction; None: they called no child play."""
    ok, failed = Counter[int](), Counter[int]()
    for dataset_id, row in rows:
        if row.children_ok or row.children_failed:
            ok[dataset_id] += row.children_ok
            failed[dataset_id] += row.children_failed
    if not ok:
        return None
    datasets = sorted(ok)
    return {
        "session_id": session_id,
        "dataset_ids": datasets,
        "ok": [ok[one] for one in datasets],
        "failed": [failed[one] for one in datasets],
    }
