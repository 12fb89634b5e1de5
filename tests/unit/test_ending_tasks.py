"""A task that loses a cancellation is ended all the same."""

import asyncio

from runtime.engine.ending_tasks import end_tasks


async def test_a_swallowed_cancellation_is_repeated() -> None:
    swallowed = 0

    async def stubborn() -> None:
        nonlocal swallowed
        while True:
            try:
                await asyncio.get_running_loop().create_future()
            except asyncio.CancelledError:
                swallowed += 1
                if swallowed == 3:
                    raise

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await end_tasks([task])
    assert task.cancelled() and swallowed == 3
    await end_tasks([task])
