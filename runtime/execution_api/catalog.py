"""What was looked up of tools: cached for a while, one look-up at a time per tool, failures never kept."""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry(Generic[T]):
    task: "asyncio.Task[T]"
    until_s: float
    loop: asyncio.AbstractEventLoop


class LookUpCache(Generic[T]):
    """Answers from memory while an entry is young; concurrent callers of a tool share one look-up."""

    def __init__(
        self,
        look_up: Callable[[str, str], Awaitable[T]],
        *,
        ttl_s: float,
        tools: int,
        now_s: Callable[[], float],
    ) -> None:
        self._look_up = look_up
        self._ttl_s = ttl_s
        self._tools = tools
        self._now_s = now_s
        self._entries: OrderedDict[tuple[str, str], _Entry[T]] = OrderedDict()

    async def get(self, tool: str, org_id: str, *, refresh: bool = False) -> T:
        """`refresh`: look up again, unless a look-up is under way."""
        key = (org_id, tool)
        entry = self._entries.get(key)
        loop = asyncio.get_running_loop()
        if entry is None or self._is_stale(entry, loop) or (refresh and entry.task.done()):
            entry = self._begin(key, loop)
        if entry.task.done():
            return entry.task.result()
        # A caller that is cancelled must not take the look-up away from the others.
        return await asyncio.shield(entry.task)

    def _is_stale(self, entry: _Entry[T], loop: asyncio.AbstractEventLoop) -> bool:
        if not entry.task.done():
            return entry.loop is not loop
        return entry.until_s <= self._now_s()

    def _begin(self, key: tuple[str, str], loop: asyncio.AbstractEventLoop) -> _Entry[T]:
        org_id, tool = key
        task = loop.create_task(_awaited(self._look_up(tool, org_id)))
        entry = _Entry(task=task, until_s=self._now_s() + self._ttl_s, loop=loop)
        self._entries[key] = entry
        self._entries.move_to_end(key)
        while len(self._entries) > self._tools:
            self._entries.popitem(last=False)
        task.add_done_callback(lambda _done: self._drop_if_failed(key, entry))
        return entry

    def _drop_if_failed(self, key: tuple[str, str], entry: _Entry[T]) -> None:
        failed = entry.task.cancelled() or entry.task.exception() is not None
        if failed and self._entries.get(key) is entry:
            del self._entries[key]


async def _awaited(work: Awaitable[T]) -> T:
    return await work
