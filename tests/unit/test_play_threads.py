"""Blocking code that a play moves to threads holds up no other run of the process."""

import asyncio
import threading

from runtime.policy.limits import DEFAULT_LIMITS
from workers.loop import BackgroundLoop

SLEEPERS = 60
WAIT_S = 10.0


def test_sleepers_in_threads_leave_room_for_others() -> None:
    """asyncio's own default is six threads on two cores: 60 rows that slept there stopped every other row."""
    may_end = threading.Event()
    loop = BackgroundLoop()

    async def beside() -> str:
        sleepers = [asyncio.create_task(asyncio.to_thread(may_end.wait, WAIT_S)) for _ in range(SLEEPERS)]
        await asyncio.sleep(0)
        quick = await asyncio.to_thread(str, "here")
        may_end.set()
        await asyncio.gather(*sleepers)
        return quick

    try:
        assert loop.call(beside(), WAIT_S / 2) == "here"
    finally:
        may_end.set()
        loop.stop()
        loop.loop.close()
    assert DEFAULT_LIMITS.play_threads > SLEEPERS
