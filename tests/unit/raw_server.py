"""An HTTP server of a few lines: what it was asked, and answers that are bytes."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Asked:
    line: str
    headers: dict[str, str]
    body: bytes


Answer = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


def reply(status: int, body: bytes = b"", **headers: str) -> Answer:
    lines = [f"HTTP/1.1 {status} Said", f"content-length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]

    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            "\r\n".join(lines).encode() + b"\r\n\r\n" + (b"" if asked.line.startswith("HEAD") else body)
        )
        await writer.drain()

    return answer


@dataclass
class RawServer:
    port: int = 0
    answers: dict[str, Answer] = field(default_factory=dict)  # by path
    asked: list[Asked] = field(default_factory=list)
    connections: int = 0
    open: int = 0
    over: asyncio.Event = field(default_factory=asyncio.Event)
    tasks: set["asyncio.Task[None]"] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self.serve(reader, writer))
        self.tasks.add(task)

    async def stall(self, asked: Asked, writer: asyncio.StreamWriter) -> None:
        """An answer that never comes."""
        await self.over.wait()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.open += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                line, *lines = head.decode().strip().split("\r\n")
                headers = {name.lower(): value for name, _, value in (one.partition(": ") for one in lines)}
                body = await reader.readexactly(int(headers.get("content-length", 0)))
                asked = Asked(line, headers, body)
                self.asked.append(asked)
                path = line.split(" ")[1].partition("?")[0]
                await self.answers.get(path, reply(404, b"no such path"))(asked, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.open -= 1
            writer.close()


@asynccontextmanager
async def raw_server() -> AsyncIterator[RawServer]:
    served = RawServer()
    server = await asyncio.start_server(served.take, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        served.over.set()
        server.close()
        for task in served.tasks:
            task.cancel()
        await asyncio.gather(*served.tasks, return_exceptions=True)
