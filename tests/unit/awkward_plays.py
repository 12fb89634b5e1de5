"""Play bodies that use asyncio in every way that has gone wrong in a replay."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator
from typing import Any

ROWS = [{"name": "a"}, {"name": "b"}, {"name": "c"}]


def _value(row: Any, ctx: Any) -> Any:
    return row["name"]


async def dataset(ctx: Any, key: str) -> Any:
    return await ctx.dataset(key, ROWS).with_column("x", _value).run(key="name")


async def tool(ctx: Any, id: str, input: Any = None) -> Any:
    return await ctx.tools.execute(id=id, tool="t", input=input if input is not None else id)


async def gather_all(ctx: Any, input: Any) -> Any:
    a, b, _ = await asyncio.gather(dataset(ctx, "a"), dataset(ctx, "b"), asyncio.sleep(0.4))
    return [a.rows, b.rows, await tool(ctx, "after")]


async def swallows_exception(ctx: Any, input: Any) -> Any:
    log = []
    try:
        await dataset(ctx, "a")
    except Exception as error:
        log.append(repr(error))
    await tool(ctx, "s")
    return log


async def swallows_base_exception(ctx: Any, input: Any) -> Any:
    log = []
    try:
        await dataset(ctx, "a")
    except BaseException as error:
        log.append(repr(error))
    await tool(ctx, "s")
    return log


async def swallowing_loop(ctx: Any, input: Any) -> Any:
    n = 0
    while True:
        try:
            await asyncio.sleep(0.25)
            n += 1
            if n == 2:
                return n
        except BaseException:
            pass


async def swallowing_spin(ctx: Any, input: Any) -> Any:
    try:
        await asyncio.sleep(0.25)
    except BaseException:
        while True:
            with contextlib.suppress(BaseException):
                await asyncio.sleep(0)
    return "fine"


async def finally_cleans(ctx: Any, input: Any) -> Any:
    try:
        await asyncio.sleep(0.3)
    finally:
        await tool(ctx, "cleanup")
    return "ok"


async def forgets_a_task(ctx: Any, input: Any) -> Any:
    async def background() -> None:
        await asyncio.sleep(50)
        await tool(ctx, "never")

    task = asyncio.create_task(background())
    await asyncio.sleep(0.3)
    return "returned" if not task.done() else "?"


async def races(ctx: Any, input: Any) -> Any:
    table, sleep = asyncio.ensure_future(dataset(ctx, "a")), asyncio.ensure_future(asyncio.sleep(0.8))
    done, _ = await asyncio.wait({table, sleep}, return_when=asyncio.FIRST_COMPLETED)
    first = "dataset" if table in done else "sleep"
    said = await tool(ctx, f"first-{first}")
    await (sleep if first == "dataset" else table)
    await asyncio.sleep(0.3)
    return [said, len(done)]


async def sleeps_beside(ctx: Any, input: Any) -> Any:
    async def poll() -> Any:
        await asyncio.sleep(0.5)
        return await tool(ctx, "polled")

    return await asyncio.gather(asyncio.sleep(1.2, "slept"), poll())


async def task_group(ctx: Any, input: Any) -> Any:
    async with asyncio.TaskGroup() as group:
        a = group.create_task(dataset(ctx, "a"))
        group.create_task(asyncio.sleep(0.5))
        c = group.create_task(tool(ctx, "s"))
    return [a.result().rows, c.result()]


async def task_group_fails(ctx: Any, input: Any) -> Any:
    async def bad() -> None:
        await tool(ctx, "s")
        await asyncio.sleep(0.25)
        raise ValueError("boom")

    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(dataset(ctx, "long"))
            group.create_task(bad())
    except* ValueError:
        pass
    return await tool(ctx, "recovered")


async def timeout_fires(ctx: Any, input: Any) -> Any:
    try:
        async with asyncio.timeout(0.4):
            await dataset(ctx, "long")
    except TimeoutError:
        return await tool(ctx, "timed out")
    return "?"


async def wait_for_fires(ctx: Any, input: Any) -> Any:
    try:
        await asyncio.wait_for(asyncio.sleep(30), 0.4)
    except TimeoutError:
        return "timed out"
    return "?"


async def semaphore(ctx: Any, input: Any) -> Any:
    gate = asyncio.Semaphore(2)

    async def one(i: int) -> Any:
        async with gate:
            return await tool(ctx, f"s{i}")

    return await asyncio.gather(*[one(i) for i in range(10)])


async def queue(ctx: Any, input: Any) -> Any:
    items: asyncio.Queue[int | None] = asyncio.Queue()

    async def producer() -> None:
        for i in range(3):
            await asyncio.sleep(0.2)
            await items.put(i)
        await items.put(None)

    task = asyncio.create_task(producer())
    out = []
    while (item := await items.get()) is not None:
        out.append(await tool(ctx, f"got{item}"))
    await task
    return out


async def async_generator(ctx: Any, input: Any) -> Any:
    async def items() -> AsyncIterator[Any]:
        for i in range(3):
            yield await tool(ctx, "g", i)

    out = []
    async for item in items():
        out.append(item)
        await asyncio.sleep(0.2)
    return out


async def tool_fails(ctx: Any, input: Any) -> Any:
    kept: Any = None
    try:
        await ctx.tools.execute(id="bad", tool="bad", input=1)
    except Exception as error:
        kept = [type(error).__name__, str(error), getattr(error, "details", None)]
    await asyncio.sleep(0.3)
    return kept


async def sleeping_loop(ctx: Any, input: Any) -> Any:
    n = 0
    for _ in range(4):
        await asyncio.sleep(0.2)
        n += 1
    return n


async def as_completed(ctx: Any, input: Any) -> Any:
    out = []
    for next_one in asyncio.as_completed(
        [tool(ctx, "slow"), tool(ctx, "quick"), asyncio.sleep(0.9, "slept")]
    ):
        out.append(await next_one)
    await asyncio.sleep(0.3)
    return out


async def clock(ctx: Any, input: Any) -> Any:
    loop = asyncio.get_running_loop()
    before = loop.time()
    await dataset(ctx, "a")
    await asyncio.sleep(0.3)
    after = loop.time()
    await tool(ctx, f"took {after - before}")
    return round(after - before, 3) >= 0.4


async def deadlocks(ctx: Any, input: Any) -> Any:
    await asyncio.Event().wait()


async def does_io(ctx: Any, input: Any) -> Any:
    await asyncio.to_thread(time.sleep, 1)


async def opens_a_socket(ctx: Any, input: Any) -> Any:
    await asyncio.open_connection("127.0.0.1", 1)


async def spins(ctx: Any, input: Any) -> Any:
    while True:
        await asyncio.sleep(0)


async def is_random(ctx: Any, input: Any) -> Any:
    await tool(ctx, f"s{random.random()}")
    await asyncio.sleep(0.3)


async def exits(ctx: Any, input: Any) -> Any:
    raise SystemExit(3)


LONG = {"dataset_s": {"a": 0.3, "b": 0.6, "long": 30.0}, "tool_s": {"slow": 0.5, "quick": 0.25}}

EXPECTED: list[tuple[Any, Any]] = [
    (gather_all, [3, 3, "t(after)"]),
    (swallows_exception, []),
    (swallows_base_exception, []),
    (swallowing_loop, 2),
    (swallowing_spin, "fine"),
    (finally_cleans, "ok"),
    (forgets_a_task, "returned"),
    (races, ["t(first-dataset)", 1]),
    (sleeps_beside, ["slept", "t(polled)"]),
    (task_group, [3, "t(s)"]),
    (task_group_fails, "t(recovered)"),
    (timeout_fires, "t(timed out)"),
    (wait_for_fires, "timed out"),
    (semaphore, [f"t(s{i})" for i in range(10)]),
    (queue, ["t(got0)", "t(got1)", "t(got2)"]),
    (async_generator, ["t(0)", "t(1)", "t(2)"]),
    (tool_fails, ["ToolRejectedError", "no such thing", {"why": "bad"}]),
    (sleeping_loop, 4),
    (as_completed, ["t(quick)", "t(slow)", "slept"]),
    (clock, True),
]
