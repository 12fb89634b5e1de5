"""What a process keeps of the messages that it sent: nothing."""

import json
import os
import subprocess
import sys

import pytest
import redis

pytestmark = pytest.mark.servers

PAGES = 30
SENDS = f"""
import asyncio, gc, json, redis
from celery.result import AsyncResult
from runtime.model.page import PageOut
from workers.app import app
from workers.publishing import CeleryPublisher

async def send(publisher):
    pages = [PageOut(run_id="r1", dataset_id=1, page=n, slices=(0, 1, 2, 3, 4)) for n in range({PAGES})]
    await publisher.pages_out(pages)
    await publisher.resume(["r1"])

app.loader.import_default_modules()
publisher = CeleryPublisher(app)
asyncio.run(send(publisher))
gc.collect()
kept = sum(isinstance(kept, AsyncResult) for kept in gc.get_objects())
with redis.Redis.from_url(app.conf.broker_url) as client:
    print(json.dumps({{"kept": kept, "subscribed": len(client.pubsub_channels("celery-task-meta-*"))}}))
publisher.close()
"""


def test_a_sender_of_chords_keeps_nothing_of_them(database_url: str, redis_url: str) -> None:
    """Celery's own kept the result and a subscription of each slice: a worker that sent a million rows grew by 10 %."""
    env = os.environ | {"PLAYLANE_DATABASE_URL": database_url, "PLAYLANE_REDIS_URL": redis_url}
    done = subprocess.run(
        [sys.executable, "-c", SENDS], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"kept": 0, "subscribed": 0}
    with redis.Redis.from_url(redis_url) as client:
        assert client.llen("rows") == 5 * PAGES
        assert client.llen("plays") == 1
