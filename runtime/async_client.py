"""PlayClient for programs with a loop of their own: the same client, its blocking parts in threads."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any, Self

from runtime.client import PlayClient
from runtime.model.events import RunEvent
from runtime.model.status import RunStatus, SheetRow
from runtime.policy.limits import DEFAULT_LIMITS, Limits


class AsyncPlayClient:
    """Everything that PlayClient does is in `client`; what is asked most is here, awaited."""

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

    async def cancel(self, run_id: str) -> None:
        """Ask for the run's end."""
        await asyncio.to_thread(self.client.cancel, run_id)

    async def deliver(self, key: str, payload: Any = None, *, event_id: str | None = None) -> str:
        """Tell runs of the org of an event and return its id."""
        return await asyncio.to_thread(self.client.deliver, key, payload, event_id=event_id)

    async def status(self, run_id: str) -> RunStatus:
        """The run as it is now; raises UnknownRunError."""
        return await asyncio.to_thread(self.client.status, run_id)

    async def wait(self, run_id: str, timeout_s: float) -> RunStatus:
        """The ended run; raises RunWaitExceededError."""
        return await asyncio.to_thread(self.client.wait, run_id, timeout_s)

    async def result(self, run_id: str, timeout_s: float) -> Any:
        """What the play returned; raises RunNotCompletedError or RunWaitExceededError."""
        return await asyncio.to_thread(self.client.result, run_id, timeout_s)

    async def events(self, run_id: str) -> AsyncIterator[RunEvent]:
        """What happens in the run, to its end."""
        told: Iterator[RunEvent] = self.client.events(run_id)
        while (event := await asyncio.to_thread(next, told, None)) is not None:
            yield event

    async def sheet(self, play: str, namespace: str) -> AsyncIterator[SheetRow]:
        """All rows of a sheet, in key order."""
        rows = self.client.sheet(play, namespace)
        while (row := await asyncio.to_thread(next, rows, None)) is not None:
            yield row

    async def aclose(self) -> None:
        await asyncio.to_thread(self.client.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()
