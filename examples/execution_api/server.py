"""The reference API behind a real socket, with the faults that only a server can make."""

import asyncio
from email.utils import formatdate
from typing import Any

import uvicorn
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from examples.execution_api.app import create_app
from examples.execution_api.execution import ApiState


def with_date(app: ASGIApp) -> ASGIApp:
    """Every reply has one `Date`: its own, or now."""

    async def dated(scope: Scope, receive: Receive, send: Send) -> None:
        async def sends(message: Message) -> None:
            if message["type"] == "http.response.start" and not any(
                name.lower() == b"date" for name, _value in message["headers"]
            ):
                message["headers"] = [*message["headers"], (b"date", formatdate(usegmt=True).encode())]
            await send(message)

        await app(scope, receive, sends)

    return dated


class ApiServer(uvicorn.Server):
    """Serves `state`; `state.server` is this server while it runs."""

    def __init__(self, state: ApiState, *, host: str = "127.0.0.1", port: int = 0) -> None:
        config = uvicorn.Config(
            with_date(create_app(state)),
            host=host,
            port=port,
            log_level="critical",
            access_log=False,
            date_header=False,  # a reply may be told to have another
            timeout_keep_alive=75,
            timeout_graceful_shutdown=1,
            backlog=2048,
        )
        super().__init__(config)
        self._reopening: asyncio.Task[None] | None = None
        self._port = 0
        state.server = self

    @property
    def port(self) -> int:
        return self._port or self.servers[0].sockets[0].getsockname()[1]

    def refuse(self, for_ms: float) -> None:
        """Refuse connections for a while: nothing listens, idle connections are closed."""
        self._port = self.port
        for server in self.servers:
            server.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        self._reopening = asyncio.get_running_loop().create_task(self._reopen(for_ms / 1000))

    def connections_open(self) -> int:
        return len(self.server_state.connections)

    def cut(self, client: tuple[str, int]) -> None:
        """End the connection of `client` at once, without another byte."""
        for connection in list(self.server_state.connections):
            held: Any = connection
            if held.client == client:
                held.transport.abort()

    async def _reopen(self, after_s: float) -> None:
        await asyncio.sleep(after_s)
        config = self.config

        def protocol() -> asyncio.Protocol:
            made: Any = config.http_protocol_class
            return made(config=config, server_state=self.server_state, app_state=self.lifespan.state)

        loop = asyncio.get_running_loop()
        self.servers = [
            await loop.create_server(protocol, host=config.host, port=self._port, backlog=config.backlog)
        ]
