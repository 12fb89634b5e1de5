"""Calls that come alone: how long from the post to the provider."""

import secrets
import time

import httpx
from celery import Celery

from bench.ledger import LEDGER_PATH, TIMEOUT_S
from bench.measuring import BenchFailedError
from bench.world import World
from broker_config.queues import lane_queue
from runtime.client import PlayClient
from runtime.model import post_message
from runtime.model.call import Call, Post
from runtime.policy.identity import call_keys
from runtime.policy.limits import DEFAULT_LIMITS

LANE = "fakeprov"
WAITING_PLAY = "bench_wait"
ARRIVES_S = 10.0
POLL_S = 0.005


def lone_delays_ms(world: World, *, tool: str, calls: int, pause_s: float) -> list[float]:
    """Delay of each call beyond the lane's window; one after the other, `pause_s` apart."""
    servers = world.servers
    tag = secrets.token_hex(4)
    with (
        PlayClient(database_url=servers.database_url, redis_url=servers.redis_url) as client,
        Celery(broker=servers.redis_url, set_as_current=False) as sender,
        httpx.Client(trust_env=False) as http,
    ):
        # A lane drops calls that no live run waits for.
        run_id = client.enqueue(WAITING_PLAY, {})
        delays: list[float] = []
        for number in range(calls + 1):
            item = f"{tag}-{number}"
            posted = time.time()
            _post(sender, _call(tool, item, run_id))
            arrived = _arrival(http, world.api_url, item, since=posted - 1)
            delays.append((arrived - posted) * 1000 - DEFAULT_LIMITS.coalesce_window_ms)
            time.sleep(pause_s)
        client.cancel(run_id)
    return delays[1:]  # the first opens connections


def _call(tool: str, item: str, run_id: str) -> Call:
    given = {"item": item}
    keys = call_keys(
        org_id="default", tool=tool, input=given, auth_scope=None, action_version="1", response_revision=None
    )
    return Call(
        key=keys.receipt,
        org_id="default",
        run_id=run_id,
        tool=tool,
        input=given,
        idempotency_key=keys.item,
        inbox="bench",
    )


def _post(sender: Celery, call: Call) -> None:
    post = Post(post_id=secrets.token_hex(8), lane=LANE, calls=(call,))
    sender.send_task(
        "lanes.execute",
        task_id=post.post_id,
        kwargs={"post": post_message.to_message(post)},
        queue=lane_queue(LANE),
        argsrepr="()",
        kwargsrepr="1 call",
        ignore_result=True,
    )


def _arrival(http: httpx.Client, api_url: str, item: str, *, since: float) -> float:
    """When the ledger saw the item; polled afterwards, so that asking costs the call nothing."""
    deadline = time.monotonic() + ARRIVES_S
    while time.monotonic() < deadline:
        time.sleep(POLL_S)
        reply = http.get(f"{api_url}{LEDGER_PATH}", params={"since": since}, timeout=TIMEOUT_S)
        for entry in reply.raise_for_status().json()["entries"]:
            if item in entry["items"]:
                return float(entry["time"])
    raise BenchFailedError(f"the lone call {item} did not reach the provider within {ARRIVES_S:g} s")
