"""Statuses of runs for tests that only read them."""

from datetime import UTC, datetime
from typing import Any

from runtime.model.dataset import DatasetState
from runtime.model.run import RunState
from runtime.model.status import DatasetStatus, RunStatus, ToolUsage

BEGIN = datetime(2025, 1, 31, 12, 0, tzinfo=UTC)


def dataset_status(key: str = "airports", **changes: Any) -> DatasetStatus:
    values: dict[str, Any] = {
        "dataset_id": 1,
        "key": key,
        "namespace": key,
        "state": DatasetState.RUNNING,
        "columns": ("zone",),
        "rows": 1_000,
        "duplicates": 0,
        "completed": 0,
        "failed": 0,
        "cancelled": 0,
        "superseded": 0,
        "pages_seeded": 2,
        "pages_total": 2,
        "pages_settled": 0,
        "created_at": BEGIN,
        "ended_at": None,
    }
    return DatasetStatus(**{**values, **changes})


def tool_usage(tool: str = "timezone_at", **changes: Any) -> ToolUsage:
    values: dict[str, Any] = {"items": 90, "batches": 1, "capacity": 100, "cached": 0, "followed": 0}
    return ToolUsage(tool=tool, credits=0.0, **{**values, **changes})


def run_status(state: RunState = RunState.RUNNING, **changes: Any) -> RunStatus:
    values: dict[str, Any] = {
        "run_id": "r1",
        "org_id": "default",
        "input": {},
        "play": "airports",
        "attempt": 1,
        "result": None,
        "error": None,
        "datasets": (),
        "usage": (),
        "created_at": BEGIN,
        "started_at": None,
        "ended_at": None,
        "now": BEGIN,
    }
    return RunStatus(state=state, **{**values, **changes})
