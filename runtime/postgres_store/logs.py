"""Log lines of runs, as parameters of one bulk insert."""

from collections.abc import Sequence
from typing import Any

from runtime.model import json_value
from runtime.ports import LogLine


def log_arrays(lines: Sequence[tuple[str, LogLine]]) -> dict[str, Any]:
    """(run, line) pairs as the arrays that `add_logs` takes."""
    return {
        "run_ids": [run_id for run_id, _ in lines],
        "scopes": [line.scope for _, line in lines],
        "ns": [line.n for _, line in lines],
        "levels": [line.level for _, line in lines],
        "messages": [line.message for _, line in lines],
        "fields": [json_value.dumps(dict(line.fields)).decode() for _, line in lines],
    }
