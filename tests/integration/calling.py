"""A caller whose posts reach a lane of the same process."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import count

from runtime.engine.caller import Caller
from runtime.engine.poster import Poster
from runtime.engine.tool_calls import ToolCalls
from runtime.model.call import Call, Post
from runtime.model.page import PageOut
from tests.integration.lane_world import INBOX, LIMITS, LaneWorld


class _ToLane:
    """A publisher whose posts reach the lane at once."""

    def __init__(self, world: LaneWorld) -> None:
        self._world = world
        self._posts = count()

    async def post(self, lane: str, calls: Sequence[Call]) -> None:
        post = Post(post_id=f"t{next(self._posts)}", lane=lane, calls=tuple(calls))
        await self._world.engine.accept(post)

    async def resume(self, run_ids: Sequence[str]) -> None: ...

    async def pages_out(self, pages: Sequence[PageOut]) -> None: ...


@asynccontextmanager
async def tool_calls(world: LaneWorld) -> AsyncIterator[tuple[Caller, ToolCalls]]:
    """As a row process has them, started."""
    caller = Caller(
        session_id=INBOX,
        receipts=world.receipts,
        leases=world.leases,
        inbox=world.inbox,
        poster=Poster(_ToLane(world), LIMITS),
        limits=LIMITS,
    )
    tools = ToolCalls(
        caller=caller,
        catalog=world.client,
        lane_of=lambda provider: provider,
        session_id=INBOX,
        limits=LIMITS,
    )
    caller.start()
    try:
        yield caller, tools
    finally:
        await caller.stop()
