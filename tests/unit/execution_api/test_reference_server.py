"""The reference API behind a real socket."""

import asyncio
from email.utils import parsedate_to_datetime

import httpx
import pytest

from examples.execution_api.execution import ApiState
from examples.execution_api.ledger import Ledger
from examples.execution_api.misbehaviour import ForcedAnswer, Misbehaviour
from examples.execution_api.server import ApiServer
from runtime.execution_api import wire
from tests.waiting import wait_until_async

FORCED = "Wed, 21 Oct 2015 07:28:00 GMT"


@pytest.mark.parametrize("date", [None, FORCED])
async def test_a_reply_has_one_date(date: str | None) -> None:
    state = ApiState(ledger=Ledger())
    state.misbehaviour = Misbehaviour(answer=ForcedAnswer(status=429, date=date))
    server = ApiServer(state)
    serving = asyncio.create_task(server.serve())
    try:
        await wait_until_async(lambda: server.started)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as http:
            body = {"payload": {"item": "a"}, "metadata": {}}
            reply = await http.post(
                "/api/v2/integrations/echo_single/execute", json=body, headers={"authorization": "Bearer t"}
            )
    finally:
        server.should_exit = True
        await serving
    assert reply.status_code == 429
    (found,) = reply.headers.get_list(wire.DATE)
    assert found == FORCED if date else parsedate_to_datetime(found)
