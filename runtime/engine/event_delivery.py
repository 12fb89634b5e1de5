"""Events: delivered once to all who wait for their key, told again by sweeps if their message was lost."""

import structlog

from runtime.engine.settling import Settling
from runtime.model.boundary import Delivered, Event
from runtime.ports import Publisher, WaitStore

log = structlog.get_logger()


class EventDelivery:
    """What the store decides is published after its commit."""

    def __init__(self, *, waits: WaitStore, settling: Settling, publisher: Publisher) -> None:
        self._waits = waits
        self._settling = settling
        self._publisher = publisher

    async def deliver(self, event: Event) -> Delivered:
        """Wake everybody who waits for it; repeated it wakes nobody."""
        told = await self._waits.deliver(event)
        log.info(
            "event delivered",
            action="event.deliver",
            org_id=event.org_id,
            event_id=event.event_id,
            key=event.key,
            bodies=told.bodies,
            rows=told.rows,
        )
        if told.run_ids:
            await self._publisher.resume(told.run_ids)
        if told.rows:
            await self._settling.wake()
        return told

    async def sweep(self) -> int:
        """Deliver what nobody has delivered, forget what is old."""
        left = await self._waits.undelivered()
        for event in left:
            await self.deliver(event)
        await self._waits.prune()
        return len(left)
