import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest

from examples.execution_api.app import create_app
from examples.execution_api.execution import ApiState
from examples.execution_api.ledger import Ledger
from examples.execution_api.server import ApiServer
from runtime.execution_api.client import ExecutionApiClient
from runtime.execution_api.exchange import ExecuteRequest
from runtime.execution_api.tokens import StaticTokenSource
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from tests.waiting import wait_until_async

TOKEN = "canary-7f3a-token"


@pytest.fixture
def state() -> ApiState:
    return ApiState(ledger=Ledger())


@pytest.fixture
def limits() -> Limits:
    return replace(DEFAULT_LIMITS, body_stall_ms=100, control_delays_ms=(0, 0))


@pytest.fixture
async def client(state: ApiState, limits: Limits) -> AsyncIterator[ExecutionApiClient]:
    """The client over the reference API in process."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=create_app(state))) as http:
        yield ExecutionApiClient("http://api.example", StaticTokenSource(value=TOKEN), limits, http)


@pytest.fixture
async def served(state: ApiState) -> AsyncIterator[str]:
    """The reference API behind a real socket, in this loop."""
    server = ApiServer(state)
    task = asyncio.create_task(server.serve())
    await wait_until_async(lambda: server.started)
    yield f"http://127.0.0.1:{server.port}"
    state.reset()
    server.should_exit = True
    await task


@pytest.fixture
async def socket_client(served: str, limits: Limits) -> AsyncIterator[ExecutionApiClient]:
    client = ExecutionApiClient(served, StaticTokenSource(value=TOKEN), limits)
    yield client
    await client.close()


def request_of(operation: str = "echo", payload: Any = None, **changes: Any) -> ExecuteRequest:
    value = {"item": "a"} if payload is None else payload
    size = len(value["items"]) if "items" in value else 1
    given: dict[str, Any] = {
        "org_id": "org",
        "operation": operation,
        "payload": orjson.dumps(value),
        "idempotency_key": "batch-1",
        "item_idempotency_keys": tuple(f"item-{n}" for n in range(size)),
        "run_id": "run-1",
        "timeout_ms": 5_000,
    }
    return ExecuteRequest(**(given | changes))


def answering(
    reply: Callable[[httpx.Request], httpx.Response], limits: Limits = DEFAULT_LIMITS, **options: Any
) -> ExecutionApiClient:
    """A client whose API is a function."""
    http = httpx.AsyncClient(transport=httpx.MockTransport(reply))
    return ExecutionApiClient("http://api.example", StaticTokenSource(value=TOKEN), limits, http, **options)
