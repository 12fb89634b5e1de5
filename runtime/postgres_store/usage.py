"""Usage of runs, added in the writer's transaction."""

import uuid
from collections.abc import Sequence
from typing import Any

from runtime.model.call import Usage
from runtime.postgres_store.named import load

ADD_USAGE = load("flush")["add_usage"]


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
