"""`playlane lanes`: how each lane is doing, fleet wide."""

import asyncio
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from broker_config.lanes import LANES
from broker_config.queues import lane_queue
from broker_config.settings import Settings
from runtime.model.lane_state import LaneState, RateReason
from runtime.policy.limits import Limits
from runtime.redis_store.connect import connect
from runtime.redis_store.lane_states import lane_states
from runtime.server_address import broker_address, redis_address
from workers.cli.connection import reaching, sender_settings
from workers.cli.options import AsJson
from workers.cli.terminal import plain_table, say_json
from workers.queue_depths import queue_depths, queue_readers

STYLES = {RateReason.CLOSED: "red", RateReason.AIMD: "yellow"}


def lanes(
    watch: Annotated[bool, typer.Option("--watch", help="Show it anew each second, until Ctrl-C.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show every lane: what waits in its queue and who reads it, and per organisation and provider what is on the
    wire, the rate now and why, how full requests are, what waits for its turn, and who holds slots since when.
    """
    from workers.configuration import limits_of

    settings = sender_settings()
    limits = limits_of(settings)
    if as_json:
        for line in described(*look(settings, limits)):
            say_json(line)
        return
    console = Console()
    if not watch:
        console.print(view(*look(settings, limits)))
        return
    with Live(console=console, auto_refresh=False) as live:
        while True:
            live.update(view(*look(settings, limits)), refresh=True)
            time.sleep(limits.lanes_watch_s)


Depths = Mapping[str, int]
Readers = Mapping[str, int] | None


def look(settings: Settings, limits: Limits) -> tuple[Depths, Readers, list[LaneState]]:
    """Messages by queue, readers by queue (None: nobody answered), and what Redis knows of each lane."""
    names = [lane_queue(lane.provider) for lane in LANES]
    variable = "PLAYLANE_REDIS_URL" if settings.broker_is_redis else "PLAYLANE_BROKER_URL"
    with reaching("the broker", broker_address(settings.broker_url), variable):
        depths, readers = queue_depths(names), queue_readers(limits.doctor_ask_s)
    with reaching("Redis", redis_address(settings.state_url), "PLAYLANE_REDIS_URL"):
        return depths, readers, asyncio.run(_states(settings, limits))


async def _states(settings: Settings, limits: Limits) -> list[LaneState]:
    redis = connect(settings.state_url, limits)
    try:
        return await lane_states(redis, limits)
    finally:
        await redis.aclose()


def described(depths: Depths, readers: Readers, states: list[LaneState]) -> list[dict[str, Any]]:
    """A JSON object a lane; `scopes`: one an organisation and provider."""
    by_lane: dict[str, list[dict[str, Any]]] = {}
    for state in states:
        by_lane.setdefault(state.lane, []).append(_scope(state))
    return [
        {
            "lane": name.removeprefix("lane."),
            "queue": name,
            "waiting_posts": depth,
            "readers": None if readers is None else readers.get(name, 0),
            "scopes": by_lane.get(name.removeprefix("lane."), []),
        }
        for name, depth in depths.items()
    ]


def _scope(state: LaneState) -> dict[str, Any]:
    return {
        "org_id": state.org_id,
        "provider": state.provider,
        "is_fixture": state.is_fixture,
        "rules": state.rules,
        "rate_per_s": state.rate_per_s,
        "full_rate_per_s": state.full_rate_per_s,
        "reason": state.reason.value,
        "closed_until": _moment(state.closed_until_ms),
        "in_flight": state.in_flight,
        "waiting": state.waiting,
        "requests": state.requests,
        "items": state.items,
        "fill": None if state.fill is None else round(state.fill, 4),
        "concurrency": state.concurrency,
        "holders": [
            {"session_id": holder.session_id, "since": _moment(holder.since_ms)} for holder in state.holders
        ],
    }


def view(depths: Depths, readers: Readers, states: list[LaneState]) -> Group:
    """Queues above, what is sent below."""
    parts: list[Table | Text] = [_queues(depths, readers)]
    if readers is None:
        parts.append(Text("no worker answered, so nobody says who reads these queues: start lane workers"))
    if states:
        parts += [Text(), _scopes(states)]
    held = [(state, holder) for state in states for holder in state.holders]
    if held:
        parts += [Text(), _holders(held)]
    return Group(*parts)


def _queues(depths: Depths, readers: Readers) -> Table:
    table = _table("queue", "posts waiting", "readers")
    for name, depth in depths.items():
        count = "?" if readers is None else str(readers.get(name, 0))
        table.add_row(name, f"{depth:,}", Text(count, style="red" if count == "0" else ""))
    return table


def _scopes(states: list[LaneState]) -> Table:
    table = _table(
        "provider", "lane", "org", "rate now", "on the wire", "in line", "requests", "items", "full"
    )
    for state in states:
        table.add_row(
            state.name,
            state.lane,
            state.org_id,
            Text(_rate(state), style=STYLES.get(state.reason, "")),
            str(state.in_flight),
            f"{state.waiting:,}",
            f"{state.requests:,}",
            f"{state.items:,}",
            "-" if state.fill is None else f"{state.fill:.0%}",
        )
    return table


def _rate(state: LaneState) -> str:
    match state.reason:
        case RateReason.CLOSED:
            left_s = max(0, (state.closed_until_ms or 0) - state.now_ms) / 1000
            return f"closed for {left_s:.0f} s more, then {state.full_rate_per_s or 0:g}/s"
        case RateReason.AIMD:
            return f"{state.rate_per_s:.3g}/s of {state.full_rate_per_s:g}/s, after refusals"
        case RateReason.RULE:
            return f"{state.full_rate_per_s:g}/s"
        case _:
            return "no rule"


def _holders(held: list[tuple[LaneState, Any]]) -> Table:
    table = _table("slot of", "held by", "since")
    for state, holder in held:
        age_s = max(0, state.now_ms - holder.since_ms) / 1000
        table.add_row(state.name, holder.session_id, f"{age_s:.0f} s")
    return table


def _table(*names: str) -> Table:
    table = plain_table()
    for name in names:
        table.add_column(
            name, no_wrap=True, justify="left" if name in ("queue", "provider", "lane") else "right"
        )
    return table


def _moment(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
