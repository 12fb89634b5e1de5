"""Reads what lanes are up to, fleet wide, for operators and metrics."""

import time
from collections.abc import Mapping
from typing import Any

from redis.asyncio import Redis

from runtime.model.lane_state import LaneState, RateReason, SlotHolder
from runtime.model.rate_scope import RateScope
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from runtime.redis_store import keys
from runtime.redis_store.pacer_scripts import Pace, PacerScripts, PaceSnapshot
from runtime.redis_store.scripts import reaching_redis

Known = dict[str, str]


async def lane_states(redis: Redis, limits: Limits = DEFAULT_LIMITS) -> list[LaneState]:
    """Every lane, organisation and provider that sent something within a day, in order of their names."""
    scripts = PacerScripts(redis, limits)
    found: list[LaneState] = []
    for known in await _known(redis, limits):
        scope = RateScope(
            lane=known["lane"],
            org_id=known["org"],
            provider=known["provider"],
            is_fixture=bool(known.get("fixture")),
        )
        paced = await scripts.snapshot(Pace(scope=scope, meters=()))
        alive = await _alive(redis, known, scope)
        found.append(_state(known, paced, alive))
    return sorted(found, key=lambda state: (state.lane, state.provider, state.org_id))


async def _known(redis: Redis, limits: Limits) -> list[Known]:
    with reaching_redis("reading lanes"):
        await redis.zremrangebyscore(keys.LANES, 0, time.time() - limits.lanes_keep_s)
        names: list[Any] = await redis.zrange(keys.LANES, 0, -1)
        pipeline = redis.pipeline(transaction=False)
        for name in names:
            pipeline.hgetall(name)
        stored = await pipeline.execute() if names else []
    texts = [{field.decode(): value.decode() for field, value in one.items()} for one in stored]
    return [known for known in texts if "provider" in known]


async def _alive(redis: Redis, known: Known, scope: RateScope) -> set[str]:
    """Sessions that told of this lane and live."""
    told = {field: field.partition(":")[2] for field in known if field.startswith(("wire:", "line:"))}
    sessions = sorted(set(told.values()))
    with reaching_redis("reading sessions"):
        pipeline = redis.pipeline(transaction=False)
        for session in sessions:
            pipeline.exists(keys.session(session))
        lives = await pipeline.execute() if sessions else []
        alive = {session for session, is_alive in zip(sessions, lives, strict=True) if is_alive}
        gone = [field for field, session in told.items() if session not in alive]
        if gone:  # or a lane in use would keep a word of every process that it ever had
            await redis.hdel(keys.lane(scope.lane, scope.org_id, scope.state_name), *gone)
    return alive


def _state(known: Known, paced: PaceSnapshot, alive: set[str]) -> LaneState:
    full = float(known["rate"]) if known.get("rate") else None
    is_closed = paced.closed_until_us > paced.now_us
    return LaneState(
        lane=known["lane"],
        org_id=known["org"],
        provider=known["provider"],
        is_fixture=bool(known.get("fixture")),
        rules=known.get("rules", ""),
        rate_per_s=0.0 if is_closed else None if full is None else full * paced.factor,
        full_rate_per_s=full,
        reason=_reason(full, paced, is_closed),
        closed_until_ms=paced.closed_until_us // 1000 if is_closed else None,
        in_flight=_sum(known, "wire:", alive),
        waiting=paced.waiting + _sum(known, "line:", alive),
        requests=int(known.get("requests", 0)),
        items=int(known.get("items", 0)),
        capacity=int(known.get("capacity", 0)),
        concurrency=int(known["concurrency"]) if known.get("concurrency") else None,
        holders=tuple(
            SlotHolder(session_id=holder.session_id, since_ms=holder.since_us // 1000)
            for holder in sorted(paced.holders, key=lambda holder: holder.since_us)
        ),
        now_ms=paced.now_us // 1000,
    )


def _reason(full: float | None, paced: PaceSnapshot, is_closed: bool) -> RateReason:
    if is_closed:
        return RateReason.CLOSED
    if full is None:
        return RateReason.OPEN
    return RateReason.AIMD if paced.factor < 1 else RateReason.RULE


def _sum(known: Mapping[str, str], prefix: str, alive: set[str]) -> int:
    return sum(
        int(value) for field, value in known.items() if field.startswith(prefix) and field[5:] in alive
    )
