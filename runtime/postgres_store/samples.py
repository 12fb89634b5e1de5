"""Samples of runs and lanes over time: written by sweeps, read by status and report."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from runtime.model.lane_state import LaneState
from runtime.model.sample import LaneSample, RunSample
from runtime.model.status import CellCount, FailureKind, ToolUsage
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("samples")


class PostgresSamples:
    """SampleStore over Postgres, and its readers."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)
        self._limits = limits
        self._sampled_to = 0

    async def sample_runs(self) -> int:
        limits = self._limits
        values = {
            "after": self._sampled_to,
            "looks": limits.sampled_looks,
            "runs": limits.sampled_runs,
            "sample_s": limits.sample_s,
            "of_age": limits.samples_of_age,
        }

        async def work(connection: AsyncConnection) -> tuple[int, int]:
            found = await (await connection.execute(_SQL["sample_runs"], values)).fetchone()
            assert found is not None
            return found[0], found[1]

        sampled, self._sampled_to = await self._database.run("sampling runs", work)
        return sampled

    async def any_live(self) -> bool:
        return bool((await self._rows("any_live"))[0][0])

    async def sample_lanes(self, lanes: Sequence[LaneState]) -> None:
        limits = self._limits
        values = {
            **_lane_arrays(lanes),
            "sample_s": limits.sample_s,
            "again_s": limits.lane_sample_again_s,
        }
        old = {"keep_s": limits.lane_samples_keep_s, "batch": limits.purge_rows}

        async def work(connection: AsyncConnection) -> None:
            async with connection.pipeline():
                await connection.execute(_SQL["sample_lanes"], values)
                await connection.execute(_SQL["forget_lanes"], old)

        await self._database.run("sampling lanes", work)

    async def of_run(self, run_id: str) -> list[RunSample]:
        """A run's samples, in order."""
        return [_sample(row) for row in await self._rows("run", run_id=run_id)]

    async def since(self, run_id: str, age_s: float) -> RunSample | None:
        """The newest sample that is at least so old, else the first."""
        rows = await self._rows("run_since", run_id=run_id, age_s=age_s)
        return _sample(rows[0]) if rows else None

    async def active_s(self, run_id: str) -> float:
        """Active time counted so far, of a run with a deadline."""
        rows = await self._rows("active", run_id=run_id)
        return rows[0][0] if rows else 0.0

    async def lanes(self, org_id: str, since: datetime, until: datetime) -> list[LaneSample]:
        """Samples of an organisation's lanes, by lane and in order."""
        rows = await self._rows(
            "lanes", org_id=org_id, since=since, until=until, limit=self._limits.report_samples
        )
        return [_lane(row) for row in rows]

    async def lanes_now(self, org_id: str) -> list[LaneSample]:
        """How an organisation's lanes stand."""
        recent_s = self._limits.lane_sample_recent_s
        return [_lane(row) for row in await self._rows("lanes_now", org_id=org_id, recent_s=recent_s)]

    async def failure_kinds(self, run_id: str) -> list[FailureKind]:
        """Failed rows by kind, the most frequent first."""
        rows = await self._rows("failures", run_id=run_id, limit=self._limits.failures_kept)
        return [
            FailureKind(dataset=dataset, code=code, rows=count, row_key=row_key, message=message or "")
            for dataset, code, count, row_key, message in rows
        ]

    async def cells(self, run_id: str) -> list[CellCount]:
        """States of cells by dataset and column."""
        return [
            CellCount(dataset=dataset, column=column, state=state or "unknown", cells=count)
            for dataset, column, state, count in await self._rows("cells", run_id=run_id)
        ]

    async def _rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            return await (await connection.execute(_SQL[statement], values)).fetchall()

        return await self._database.run(f"samples.{statement}", work)


def _lane_arrays(lanes: Sequence[LaneState]) -> dict[str, Any]:
    return {
        "org_ids": [one.org_id for one in lanes],
        "lanes": [one.lane for one in lanes],
        "providers": [one.provider for one in lanes],
        "requests": [one.requests for one in lanes],
        "items": [one.items for one in lanes],
        "capacities": [one.capacity for one in lanes],
        "in_flight": [one.in_flight for one in lanes],
        "waiting": [one.waiting for one in lanes],
        "rates": [one.rate_per_s for one in lanes],
        "reasons": [one.reason.value for one in lanes],
        "closed_ms": [
            None if one.closed_until_ms is None else one.closed_until_ms - one.now_ms for one in lanes
        ],
    }


def _sample(row: tuple[Any, ...]) -> RunSample:
    at, completed, failed, cancelled, usage = row
    return RunSample(
        at=at,
        completed=completed,
        failed=failed,
        cancelled=cancelled,
        usage=tuple(_usage(tool, counts) for tool, counts in sorted(usage.items())),
    )


def _usage(tool: str, counts: list[Any]) -> ToolUsage:
    items, batches, capacity, cached, followed, paid = counts
    return ToolUsage(
        tool=tool,
        items=items,
        batches=batches,
        capacity=capacity,
        cached=cached,
        followed=followed,
        credits=float(paid),
    )


def _lane(row: tuple[Any, ...]) -> LaneSample:
    lane, provider, at, requests, items, capacity, in_flight, waiting, rate_per_s, reason, closed_until = row
    return LaneSample(
        lane=lane,
        provider=provider,
        at=at,
        requests=requests,
        items=items,
        capacity=capacity,
        in_flight=in_flight,
        waiting=waiting,
        rate_per_s=rate_per_s,
        reason=reason,
        closed_until=closed_until,
    )
