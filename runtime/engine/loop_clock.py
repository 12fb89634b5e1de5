"""The Clock of the process's own loop."""

import asyncio
from collections.abc import Callable


class LoopClock:
    def now_ms(self) -> float:
        return asyncio.get_running_loop().time() * 1000

    def call_later(self, delay_ms: float, callback: Callable[[], None]) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, delay_ms) / 1000, callback)

    async def sleep(self, delay_ms: float) -> None:
        await asyncio.sleep(max(0.0, delay_ms) / 1000)
