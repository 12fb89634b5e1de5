"""One attempt of a fetch over a real socket: addresses, redirects, deadlines, sizes."""

import asyncio
import gzip
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import pytest

from runtime.errors import EgressRefusedError, FetchFailedError, FetchTimeoutError
from runtime.execution_api.egress import PublicEgress
from runtime.model.fetch import EgressRequest
from runtime.policy.egress import allowed_hosts
from runtime.policy.limits import DEFAULT_LIMITS, Limits
from tests.unit.raw_server import Asked, RawServer, raw_server, reply
from tests.waiting import wait_until_async

SHORT = replace(DEFAULT_LIMITS, keepalive_s=0.05, fetch_headers_ms=150.0, fetch_body_ms=150.0)


@pytest.fixture
async def server() -> AsyncIterator[RawServer]:
    async with raw_server() as served:
        yield served


@pytest.fixture
async def egress(server: RawServer) -> AsyncIterator[PublicEgress]:
    made = PublicEgress(allowed_hosts((f"127.0.0.1:{server.port}",)), SHORT)
    yield made
    await made.close()


def get(url: str, **more: object) -> EgressRequest:
    return replace(EgressRequest(method="GET", url=url, headers={}), **more)  # type: ignore[arg-type]


async def test_an_answer(egress: PublicEgress, server: RawServer) -> None:
    server.answers["/a"] = reply(201, b"hello", x_one="1")
    got = await egress.send(get(f"{server.url}/a?q=1"), total_ms=5_000)
    assert (got.status, got.reason, got.body, got.headers["x-one"]) == (201, "Said", b"hello", "1")
    assert got.url == f"{server.url}/a?q=1"
    assert server.asked[0].headers["host"] == f"127.0.0.1:{server.port}"


async def test_connections_are_used_again_and_end_by_themselves(
    egress: PublicEgress, server: RawServer
) -> None:
    server.answers["/a"] = reply(200, b"x")
    for _ in range(3):
        await egress.send(get(f"{server.url}/a"), total_ms=5_000)
    assert server.connections == 1
    await wait_until_async(lambda: server.open == 0 and egress.open_origins == 0)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:6379/",
        "http://[::1]/",
        "http://[::ffff:127.0.0.1]/",
        "http://2130706433/",
        "http://0177.0.0.1/",
        "http://0x7f.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://localhost/",
        "file:///etc/passwd",
        "gopher://example.com/",
        "http://user:password@example.com/",
        "http:///nowhere",
        "not a url",
        "http://exa mple.com/",
    ],
)
async def test_what_is_never_connected_to(url: str) -> None:
    egress = PublicEgress((), SHORT)
    with pytest.raises(EgressRefusedError) as refused:
        await egress.send(get(url), total_ms=5_000)
    assert "password" not in str(refused.value)
    assert "not tried again" in str(refused.value)


class Names:
    """A name server whose answers change from look-up to look-up."""

    def __init__(self, *answers: Sequence[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if not self.answers:
            raise OSError("no such name")
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


@pytest.mark.parametrize("addresses", [["10.0.0.1"], ["8.8.8.8", "127.0.0.1"], ["fe80::1%eth0"]])
async def test_a_name_of_an_inside_address(addresses: list[str]) -> None:
    egress = PublicEgress((), SHORT, resolve=Names(addresses))
    with pytest.raises(EgressRefusedError, match="not public"):
        await egress.send(get("http://inside.example/"), total_ms=5_000)


async def test_the_address_checked_is_the_one_connected_to(
    server: RawServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second look-up would lead inside; there is none."""
    names = Names(["93.184.216.34"], ["127.0.0.1"])
    egress = PublicEgress((), SHORT, resolve=names)
    connected: list[str] = []

    async def connect(host: str, port: int, *rest: object) -> object:
        connected.append(host)
        raise OSError("not really")

    monkeypatch.setattr(egress._network._network, "connect_tcp", connect)
    with pytest.raises(FetchFailedError):
        await egress.send(get("http://moving.example/"), total_ms=5_000)
    assert connected == ["93.184.216.34"]
    assert names.asked == ["moving.example"]


async def test_a_name_that_nobody_knows_is_a_failure_that_may_pass() -> None:
    egress = PublicEgress((), SHORT, resolve=Names())
    with pytest.raises(FetchFailedError) as failed:
        await egress.send(get("http://unknown.example/"), total_ms=5_000)
    assert not isinstance(failed.value, EgressRefusedError)


async def test_a_redirect_inside_is_refused(egress: PublicEgress, server: RawServer) -> None:
    server.answers["/out"] = reply(302, location="http://169.254.169.254/latest/meta-data/")
    with pytest.raises(EgressRefusedError, match="not public"):
        await egress.send(get(f"{server.url}/out"), total_ms=5_000)
    server.answers["/file"] = reply(302, location="file:///etc/passwd")
    with pytest.raises(EgressRefusedError, match="scheme"):
        await egress.send(get(f"{server.url}/file"), total_ms=5_000)


async def test_redirects_end(egress: PublicEgress, server: RawServer) -> None:
    server.answers["/loop"] = reply(302, location="/loop")
    with pytest.raises(FetchFailedError, match="redirected more than 5"):
        await egress.send(get(f"{server.url}/loop"), total_ms=5_000)
    assert len(server.asked) == 6


async def test_secret_headers_stay_with_their_origin(server: RawServer) -> None:
    async with raw_server() as other:
        allowed = allowed_hosts((f"127.0.0.1:{server.port}", f"127.0.0.1:{other.port}"))
        egress = PublicEgress(allowed, SHORT)
        server.answers["/same"] = reply(307, location="/there")
        server.answers["/there"] = reply(302, location=f"{other.url}/end")
        other.answers["/end"] = reply(200, b"done")
        request = get(
            f"{server.url}/same",
            secret_headers={"x-key": "s3cret"},
            headers={"authorization": "raw", "cookie": "c=1", "x-plain": "p"},
        )
        got = await egress.send(request, total_ms=5_000)
        assert got.url == f"{other.url}/end"
        assert [asked.headers.get("x-key") for asked in server.asked] == ["s3cret", "s3cret"]
        (there,) = other.asked
        assert {"x-key", "authorization", "cookie"}.isdisjoint(there.headers)
        assert there.headers["x-plain"] == "p"
        await egress.close()


async def test_bodies_of_redirected_requests(egress: PublicEgress, server: RawServer) -> None:
    server.answers["/303"] = reply(303, location="/end")
    server.answers["/308"] = reply(308, location="/end")
    server.answers["/end"] = reply(200)
    post = get("", method="POST", body=b"hi", headers={"content-type": "text/plain", "idempotency-key": "1"})
    await egress.send(replace(post, url=f"{server.url}/303"), total_ms=5_000)
    await egress.send(replace(post, url=f"{server.url}/308"), total_ms=5_000)
    lines = [(one.line.split()[0], one.body, "content-type" in one.headers) for one in server.asked]
    assert lines == [
        ("POST", b"hi", True),
        ("GET", b"", False),
        ("POST", b"hi", True),
        ("POST", b"hi", True),
    ]


async def test_a_secret_body_goes_to_no_other_origin(server: RawServer) -> None:
    async with raw_server() as other:
        egress = PublicEgress(allowed_hosts(("127.0.0.1",)), SHORT)
        server.answers["/"] = reply(307, location=f"{other.url}/")
        with pytest.raises(EgressRefusedError, match="another origin"):
            await egress.send(
                get(f"{server.url}/", method="POST", body=b"s3cret", has_secret_body=True), total_ms=5_000
            )
        assert other.asked == []
        await egress.close()


async def test_deadlines(egress: PublicEgress, server: RawServer) -> None:
    async def stalling(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")
        await server.over.wait()

    server.answers |= {"/silent": server.stall, "/stalling": stalling}
    with pytest.raises(FetchTimeoutError, match="no headers"):
        await egress.send(get(f"{server.url}/silent"), total_ms=5_000)
    with pytest.raises(FetchTimeoutError, match="no whole body"):
        await egress.send(get(f"{server.url}/stalling"), total_ms=5_000)
    with pytest.raises(FetchTimeoutError, match="altogether"):
        await egress.send(get(f"{server.url}/silent"), total_ms=50)


async def test_a_cut_body(egress: PublicEgress, server: RawServer) -> None:
    async def cut(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhal")
        await writer.drain()
        raise ConnectionError

    server.answers["/cut"] = cut
    with pytest.raises(FetchFailedError, match="no whole answer"):
        await egress.send(get(f"{server.url}/cut"), total_ms=5_000)


async def test_an_endless_body_and_one_that_unpacks_to_too_much(server: RawServer) -> None:
    small: Limits = replace(DEFAULT_LIMITS, fetch_body_bytes=1_000)
    egress = PublicEgress(allowed_hosts((f"127.0.0.1:{server.port}",)), small)

    async def endless(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"100\r\n" + b"x" * 256 + b"\r\n")
            await writer.drain()

    server.answers["/endless"] = endless
    server.answers["/bomb"] = reply(200, gzip.compress(b"0" * 10_000_000), content_encoding="gzip")
    server.answers["/packed"] = reply(200, gzip.compress(b"0" * 900), content_encoding="gzip")
    server.answers["/cut"] = reply(200, gzip.compress(b"0" * 900)[:-12], content_encoding="gzip")
    server.answers["/none"] = reply(200, b"", content_encoding="gzip")
    server.answers["/odd"] = reply(200, b"?", content_encoding="br")
    for path in ("/endless", "/bomb"):
        with pytest.raises(EgressRefusedError, match="larger than a fetch keeps"):
            await egress.send(get(server.url + path), total_ms=5_000)
    assert (await egress.send(get(f"{server.url}/packed"), total_ms=5_000)).body == b"0" * 900
    assert (await egress.send(get(f"{server.url}/none"), total_ms=5_000)).body == b""
    with pytest.raises(FetchFailedError, match="packed body is cut"):
        await egress.send(get(f"{server.url}/cut"), total_ms=5_000)
    with pytest.raises(FetchFailedError, match="encoding"):
        await egress.send(get(f"{server.url}/odd"), total_ms=5_000)
    await egress.close()


# ---- packed bodies

ONE, TWO = gzip.compress(b"a,b\n1,2\n"), gzip.compress(b"3,4\n" * 50_000)
BOTH = b"a,b\n1,2\n" + b"3,4\n" * 50_000


@pytest.mark.parametrize(
    "packed", [ONE + TWO, ONE + gzip.compress(b"") + TWO, ONE + b"\0" * 20 + TWO + b"\0\0"]
)
@pytest.mark.parametrize("cut", [len(ONE), len(ONE) - 3, len(ONE) + 1, 1])
async def test_a_body_of_several_gzip_members_is_read_to_its_end(
    egress: PublicEgress, server: RawServer, packed: bytes, cut: int
) -> None:
    async def answer(asked: Asked, writer: asyncio.StreamWriter) -> None:
        writer.write(
            f"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n".encode()
        )
        writer.write(packed[:cut])
        await writer.drain()
        await asyncio.sleep(0)
        writer.write(packed[cut:])
        await writer.drain()

    server.answers["/packed"] = answer
    assert (await egress.send(get(f"{server.url}/packed"), total_ms=5_000)).body == BOTH
    async with egress.stream(f"{server.url}/packed") as parts:
        assert b"".join([part async for part in parts]) == BOTH


@pytest.mark.parametrize(
    ("packed", "words"),
    [
        (ONE + b"a,b\n5,6\n", "something else that isn't gzip follows"),
        (ONE + b"x", "something else that isn't gzip follows|is cut"),
        (ONE + TWO[:-12], "is cut"),
        (ONE + TWO[:5], "is cut"),
        (b"a,b\n1,2\n", "incorrect header"),
    ],
)
async def test_what_follows_the_last_member_is_refused(
    egress: PublicEgress, server: RawServer, packed: bytes, words: str
) -> None:
    server.answers["/packed"] = reply(200, packed, content_encoding="gzip")
    with pytest.raises(FetchFailedError, match=words):
        await egress.send(get(f"{server.url}/packed"), total_ms=5_000)
    with pytest.raises(FetchFailedError, match=words):
        async with egress.stream(f"{server.url}/packed") as parts:
            async for _ in parts:
                pass
