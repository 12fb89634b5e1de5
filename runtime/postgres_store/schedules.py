"""Schedules of plays: a tick is taken in the transaction that stores its run."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from psycopg import AsyncConnection

from runtime.model import json_value
from runtime.model.run import NewRun, RunState
from runtime.model.schedule import PlaySchedule, SeenSchedule
from runtime.policy.limits import Limits
from runtime.postgres_store.named import load
from runtime.postgres_store.pool import Database, Pool

_SQL = load("schedules")
_INSERT_RUN = load("runs")["insert"]


class PostgresSchedules:
    """ScheduleStore over Postgres."""

    def __init__(self, pool: Pool, limits: Limits) -> None:
        self._database = Database(pool, limits)

    async def see(self, schedules: Sequence[PlaySchedule]) -> list[SeenSchedule]:
        values = {
            "org_ids": [one.org_id for one in schedules],
            "plays": [one.play for one in schedules],
            "crons": [one.schedule.cron for one in schedules],
            "timezones": [one.schedule.timezone for one in schedules],
        }

        async def work(connection: AsyncConnection) -> list[tuple[Any, ...]]:
            async with connection.pipeline() as pipeline:
                await connection.execute(_SQL["see"], values)
                await pipeline.sync()
                cursor = await connection.execute(_SQL["known"], values)
                return await cursor.fetchall()

        rows = await self._database.run("reading schedules", work)
        return [
            SeenSchedule(of=of, last_tick=last_tick, now=now)
            for of, (last_tick, now) in zip(schedules, rows, strict=True)
        ]

    async def begin(self, of: PlaySchedule, tick: datetime, run: NewRun) -> bool:
        values = {
            "org_id": of.org_id,
            "play": of.play,
            "cron": of.schedule.cron,
            "timezone": of.schedule.timezone,
            "tick": tick,
        }
        new = {
            "run_id": run.run_id,
            "org_id": run.org_id,
            "play": run.play,
            "input": json_value.dumps(run.input).decode(),
            "options": json_value.dumps(run.options).decode(),
            "state": RunState.QUEUED.value,
            "error": None,
        }

        async def work(connection: AsyncConnection) -> bool:
            async with connection.transaction():
                taken = (await connection.execute(_SQL["take"], values)).rowcount == 1
                if taken:
                    await connection.execute(_INSERT_RUN, new)
                return taken

        return await self._database.run("taking a tick", work)
