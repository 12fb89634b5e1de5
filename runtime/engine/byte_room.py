"""Room for so many bytes, first come first served."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class ByteRoom:
    """Bounds what is in memory at once; who needs more than there is waits, nobody is overtaken."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.waiting_since_s = 0.0  # of the first in the line, by the loop's clock
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @asynccontextmanager
    async def held(self, size: int) -> AsyncIterator[None]:
        """Hold room for `size` bytes, at most `limit`."""
        size = min(size, self.limit)
        await self._enter(size)
        try:
            yield
        finally:
            self.used -= size
            self._let_in()

    def waiting(self) -> int:
        """How many wait for room."""
        return len(self._line)

    async def _enter(self, size: int) -> None:
        if not self._line and self.used + size <= self.limit:
            self.used += size
            return
        loop = asyncio.get_running_loop()
        if not self._line:
            self.waiting_since_s = loop.time()
        place = (size, loop.create_future())
        self._line.append(place)
        try:
            await place[1]
        except asyncio.CancelledError:
            if place in self._line:
                self._line.remove(place)
            else:
                self.used -= size  # let in and cancelled at the same moment
            self._let_in()
            raise

    def _let_in(self) -> None:
        while self._line and self.used + self._line[0][0] <= self.limit:
            size, entered = self._line.popleft()
            if not entered.done():
                self.used += size
                self.waiting_since_s = entered.get_loop().time()
                entered.set_result(None)
