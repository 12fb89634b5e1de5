"""PlayClient for programs with a loop of their own: the same client, its blocking parts in threads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self, TypeVar

from runtime.client import PlayClient
from runtime.model.budget import Caps, RunBudget
from runtime.model.events import RunEvent
from runtime.model.insight import RunInsight
from runtime.model.sample import RunHistory
from runtime.model.status import RowFailure, RunStatus, SheetRow
from runtime.model.stored_row import StoredRow
from runtime.policy.limits import DEFAULT_LIMITS, Limits

T = TypeVar("T")


class AsyncPlayClient:
    """What PlayClient does, awaited."""

    def __init__(
        self,
        *,
        redis_url: str,
        database_url: str | None = None,
        org_id: str = "default",
        limits: Limits = DEFAULT_LIMITS,
        broker_url: str | None = None,
    ) -> None:
        self.client = PlayClient(
            redis_url=redis_url,
            database_url=database_url,
            org_id=org_id,
            limits=limits,
            broker_url=broker_url,
        )

    async def enqueue(
        self,
        play: str,
        input: Any = None,
        *,
        run_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Start a run and return its id; repeating it with the same `run_id` starts nothing new."""
        return await asyncio.to_thread(self.client.enqueue, play, input, run_id=run_id, options=options)

    async def rerun(
        self,
        run_id: str,
        *,
        only: str | None = None,
        as_run_id: str | None = None,
        options: dict[str, Any] | None = None,
    ) -> str:
        """Start a run of the same play, input and options; returns its id. `only` "failed", "missing" or "stale"."""
        return await asyncio.to_thread(
            self.client.rerun, run_id, only=only, as_run_id=as_run_id, options=options
        )

    async def cancel(self, run_id: str) -> None:
        """Ask for the run's end."""
        await asyncio.to_thread(self.client.cancel, run_id)

    async def deliver(self, key: str, payload: Any = None, *, event_id: str | None = None) -> str:
        """Tell runs of the org of an event and return its id."""
        return await asyncio.to_thread(self.client.deliver, key, payload, event_id=event_id)

    async def find(self, run_id: str) -> RunStatus | None:
        """The run as it is now; None if nobody has stored it."""
        return await asyncio.to_thread(self.client.find, run_id)

    async def status(self, run_id: str) -> RunStatus:
        """The run as it is now; raises UnknownRunError."""
        return await asyncio.to_thread(self.client.status, run_id)

    async def insight(self, status: RunStatus) -> RunInsight:
        """What the counts of a run mean: rates, cost, what holds it up."""
        return await asyncio.to_thread(self.client.insight, status)

    async def history(self, status: RunStatus) -> RunHistory:
        """What was kept of a run over time."""
        return await asyncio.to_thread(self.client.history, status)

    async def budget(self, run_id: str) -> RunBudget | None:
        """What the run may use and has used; None if it has no caps."""
        return await asyncio.to_thread(self.client.budget, run_id)

    async def change_budget(self, run_id: str, caps: Caps) -> None:
        """New totals where they are given; whoever waits for budget goes on."""
        await asyncio.to_thread(self.client.change_budget, run_id, caps)

    async def wait(self, run_id: str, timeout_s: float, poll_s: float = 0.1) -> RunStatus:
        """The ended run; raises RunWaitExceededError, which leaves the run going on."""
        return await asyncio.to_thread(self.client.wait, run_id, timeout_s, poll_s)

    async def result(self, run_id: str, timeout_s: float) -> Any:
        """What the play returned; raises RunNotCompletedError or RunWaitExceededError."""
        return await asyncio.to_thread(self.client.result, run_id, timeout_s)

    async def events(self, run_id: str) -> AsyncIterator[RunEvent]:
        """What happens in the run, to its end."""
        async for event in _awaited(self.client.events(run_id)):
            yield event

    async def news(self, run_id: str, after: str) -> list[tuple[str, RunEvent]]:
        """Events beyond the place `after` that are there now, each with its place; "0" is the beginning."""
        return await asyncio.to_thread(self.client.news, run_id, after)

    async def sheet(self, play: str, namespace: str, *, org_id: str | None = None) -> AsyncIterator[SheetRow]:
        """All rows of a sheet, in key order."""
        async for row in _awaited(self.client.sheet(play, namespace, org_id=org_id)):
            yield row

    async def rows(self, dataset_id: int, *, failed: bool = False) -> AsyncIterator[StoredRow]:
        """A dataset's rows in input order, `failed` ones too; none that a newer run has written."""
        async for row in _awaited(self.client.rows(dataset_id, failed=failed)):
            yield row

    async def columns(self, dataset_id: int) -> tuple[str, ...]:
        """A dataset's stored columns: of its input, then those that were computed."""
        return await asyncio.to_thread(self.client.columns, dataset_id)

    async def failures(self, dataset_id: int) -> list[RowFailure]:
        """The first failed rows of a dataset, with their errors."""
        return await asyncio.to_thread(self.client.failures, dataset_id)

    async def aclose(self) -> None:
        await asyncio.to_thread(self.client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


async def _awaited(blocking: Iterator[T]) -> AsyncIterator[T]:
    while (one := await asyncio.to_thread(next, blocking, None)) is not None:
        yield one
