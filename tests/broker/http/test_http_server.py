"""Tests of the HTTP server with polite and hostile clients, on virtual time."""

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from tests.broker.http.http_client import HttpClient, get, http_client
from tests.broker.memory_network import MemoryStream
from tests.broker.world import World
from tidelog.broker.http.http_connection import HEADERS_MAX_BYTES, IDLE_S, REQUEST_S
from tidelog.broker.http.http_server import CONNECTIONS_MAX, HttpServer
from tidelog.broker.http.page import Handler, Page, Query, text_page
from tidelog.broker.network.refusals import Refusals

GET = b"GET /hello HTTP/1.1\r\nHost: x\r\n"
CHUNK = bytes(100_000)
CHUNKS = 1_000


def hello(_: Query) -> Page:
    return text_page("hello")


def parameters(query: Query) -> Page:
    return text_page(f"{query.path} {dict(query.parameters)} {query.accept}")


async def later(_: Query) -> Page:
    await trio.sleep(1)
    return text_page("later")


async def never(_: Query) -> Page:
    await trio.sleep_forever()
    raise AssertionError


def failing(_: Query) -> Page:
    raise ValueError("a defect")


def failing_at(good: int) -> Handler:
    def chunks() -> Iterator[bytes]:
        yield from [b"good"] * good
        raise ValueError("a defect")

    return lambda _: Page(200, "text/plain", chunks())


class Large:
    """A large page of many chunks; counts those that were asked for, and notices its end."""

    def __init__(self) -> None:
        self.count = 0
        self.has_ended = False

    def page(self, _: Query) -> Page:
        return Page(200, "text/plain", self._chunks())

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        try:
            for _ in range(CHUNKS):
                self.count += 1
                await trio.lowlevel.checkpoint()
                yield CHUNK
        finally:
            self.has_ended = True


PAGES: Mapping[str, Handler] = {
    "/hello": hello,
    "/query": parameters,
    "/later": later,
    "/never": never,
    "/failing": failing,
    "/failing-first": failing_at(0),
    "/failing-third": failing_at(2),
    "/stream": lambda _: Page(200, "text/plain", iter([b"a", b"", b"bc"])),
}


@asynccontextmanager
async def served(time: MockClock, **pages: Handler) -> AsyncGenerator[World, None]:
    """Run a server with `PAGES` and others."""
    world = World(time)
    listener = await world.network.listen("broker", 8480)
    server = HttpServer(
        world.env,
        listener,
        pages={**PAGES, **{f"/{name}": page for name, page in pages.items()}},
        refusals=Refusals(world.env.probe),
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield world
        nursery.cancel_scope.cancel()


async def answers(world: World, data: bytes, method: str = "GET") -> tuple[int, str]:
    """Return status and text of the reply to raw bytes on a connection of their own."""
    client = await http_client(world)
    await client.send(data)
    reply = await client.reply(method)
    assert reply.is_complete
    client.stream.close()
    assert reply.text.count("\n") == (method != "HEAD"), "a refusal is one line"
    return reply.status, reply.text


async def test_a_page_has_its_type_its_length_and_may_not_be_cached(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        reply = await get(world, "/hello")

        assert (reply.status, reply.body) == (200, b"hello\n")
        assert reply.headers == {
            "content-type": "text/plain; charset=utf-8",
            "cache-control": "no-store",
            "content-length": "6",
        }


async def test_a_page_gets_path_parameters_and_accept(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        target = "/quer%79?family=queue&name=pay*&name=a%20b&empty="
        reply = await get(world, target, "Accept: text/plain", "Accept: */*")

        wanted = {"family": ["queue"], "name": ["pay*", "a b"], "empty": [""]}
        assert reply.text == f"/query {wanted} text/plain, */*\n"


async def test_a_stream_of_unknown_length_is_chunked(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        reply = await get(world, "/stream")

        assert (reply.body, reply.is_complete) == (b"abc", True)
        assert reply.headers["transfer-encoding"] == "chunked"


async def test_head_gets_the_headers_alone(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        for target in ("/hello", "/stream", "/none"):
            reply = await client.get(target, method="HEAD")
            assert (reply.status, reply.body) == (404 if target == "/none" else 200, b"")
        assert (await client.get("/hello")).text == "hello\n"


async def test_pipelined_requests_are_answered_in_order(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        lines = [b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % name for name in (b"later", b"hello")]
        await client.send(b"".join(lines * 300))
        mock_clock.autojump_threshold = 0
        for _ in range(300):
            assert (await client.reply()).text == "later\n"
            assert (await client.reply()).text == "hello\n"


async def test_http_1_0_gets_the_page_and_the_end(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        await client.send(b"GET /stream HTTP/1.0\r\n\r\n")
        mock_clock.autojump_threshold = 0
        reply = await client.rest()

        assert reply.endswith(b"\r\n\r\nabc")
        assert b"transfer-encoding" not in reply.lower()


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\r\n\r\n\r\n\x00\r\n\r\n", 400),
        (b"nonsense\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),  # TLS
        (b"GET /hello HTTP/2.0\r\nHost: x\r\n\r\n", 400),
        (b"GET /hello HTTP/1.1\r\n\r\n", 400),  # without Host
        (b"GET /hello HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400),
        (b"GET http://[/hello HTTP/1.1\r\nHost: x\r\n\r\n", 400),
        (b"GET /hello?%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"a=1&" * 200), 400),
        (GET + b"Content-Length: 3\r\n\r\nabc", 400),
        (GET + b"Content-Length: 99999999999\r\n\r\n", 400),
        (GET + b"Content-Length: -1\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n", 400),
        (GET + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n", 400),
        (GET + b"Expect: 100-continue\r\nContent-Length: 3\r\n\r\n", 400),
        (b"POST /hello HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"CONNECT a:1 HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"DELETE /none HTTP/1.1\r\nHost: x\r\n\r\n", 405),
        (b"GET /%s HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 9_000), 414),
        (b"GET /%s" % (b"x" * 2 * HEADERS_MAX_BYTES), 414),
        (b"x" * 10 * HEADERS_MAX_BYTES, 414),
        (GET + b"A: %s\r\n\r\n" % (b"x" * HEADERS_MAX_BYTES), 431),
        (GET + b"A: %s" % (b"x" * 2 * HEADERS_MAX_BYTES), 431),
        (GET + b"A: b\r\n" * HEADERS_MAX_BYTES, 431),
    ],
)
async def test_a_bad_request_is_refused_in_one_line(
    data: bytes, status: int, mock_clock: MockClock
) -> None:
    async with served(mock_clock) as world:
        assert (await answers(world, data))[0] == status
        assert (await get(world, "/hello")).status == 200


async def test_a_refusal_says_what_is_allowed(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        post = await client.get("/hello", method="POST")
        assert (post.status, post.text) == (405, "only GET and HEAD are allowed\n")
        assert post.headers["allow"] == "GET, HEAD"

        client = await http_client(world)
        assert "there are /hello, /query" in (await client.get("/none")).text
        # A wrong path does not cost the connection.
        assert (await client.get("/hello")).status == 200


@pytest.mark.parametrize("name", ["Upgrade: websocket\r\nConnection: upgrade", "Connection: close"])
async def test_headers_that_change_the_connection_cost_no_reply(
    name: str, mock_clock: MockClock
) -> None:
    async with served(mock_clock) as world:
        assert (await get(world, "/hello", name)).text == "hello\n"


async def test_a_slow_request_ends_with_408(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        for _ in range(int(REQUEST_S)):  # A byte each second does not prolong it.
            await client.send(b"G")
            await world.pass_time(1.01)
        mock_clock.autojump_threshold = 0

        assert (await client.reply()).status == 408
        assert await client.rest() == b""


async def test_an_idle_connection_ends_in_silence(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        clients = [await http_client(world) for _ in range(2)]
        await clients[1].get("/hello")
        mock_clock.autojump_threshold = 0
        before = trio.current_time()

        assert [await client.rest() for client in clients] == [b"", b""]
        assert trio.current_time() - before == pytest.approx(IDLE_S, abs=0.1)


async def test_a_page_that_fails_is_logged_and_costs_a_500(
    mock_clock: MockClock, defects: list[str]
) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        for path in ("/failing", "/failing-first"):
            reply = await client.get(path)
            assert (reply.status, reply.text.startswith("this page failed")) == (500, True)
        assert len(defects) == 2
        assert "a defect" in defects[0]
        assert (await client.get("/hello")).status == 200
        defects.clear()


async def test_a_page_that_fails_in_the_middle_ends_the_connection(
    mock_clock: MockClock, defects: list[str]
) -> None:
    async with served(mock_clock) as world:
        client = await http_client(world)
        await client.send(b"GET /failing-third HTTP/1.1\r\nHost: x\r\n\r\n")
        reply = await client.rest()

        assert b"200 OK" in reply
        assert not reply.endswith(b"0\r\n\r\n"), "the reply must not look complete"
        assert len(defects) == 1
        assert (await get(world, "/hello")).status == 200
        defects.clear()


async def test_a_page_that_takes_too_long_ends_with_503(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        mock_clock.autojump_threshold = 0
        reply = await get(world, "/never")

        assert (reply.status, "not ready after 10 s" in reply.text) == (503, True)


async def start_large(world: World) -> HttpClient[MemoryStream]:
    client = await http_client(world)
    client.stream.set_receive_buffer(1 << 20)
    await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
    await wait_all_tasks_blocked()
    return client


async def test_a_slow_reader_holds_one_chunk_and_no_longer_than_10_s(mock_clock: MockClock) -> None:
    large = Large()
    async with served(mock_clock, large=large.page) as world:
        client = await start_large(world)
        assert large.count <= 12, "the buffer of the client holds ten chunks, the server one"

        await world.pass_time(REQUEST_S + 0.1)
        assert large.has_ended
        reply = await client.rest()
        assert not reply.endswith(b"0\r\n\r\n")


async def test_a_client_that_goes_in_the_middle_ends_the_page(mock_clock: MockClock) -> None:
    large = Large()
    async with served(mock_clock, large=large.page) as world:
        for is_reset in (False, True):
            client = await start_large(world)
            if is_reset:
                client.stream.reset()
            else:
                client.stream.close()
            await wait_all_tasks_blocked()
            assert large.has_ended
            large.has_ended = False
        assert (await get(world, "/hello")).status == 200


async def test_a_large_page_lets_other_tasks_run(mock_clock: MockClock) -> None:
    large = Large()
    async with served(mock_clock, large=large.page) as world:
        client = await http_client(world)
        client.stream.set_receive_buffer(1 << 30)
        await client.send(b"GET /large HTTP/1.1\r\nHost: x\r\n\r\n")
        while not large.count:
            await trio.lowlevel.checkpoint()

        assert (await get(world, "/hello")).status == 200
        assert large.count < CHUNKS


async def test_a_connection_beyond_the_limit_gets_503(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        busy = [await http_client(world) for _ in range(CONNECTIONS_MAX)]
        for client in busy:
            await client.send(b"GET /never HTTP/1.1\r\n")  # half a request
        await wait_all_tasks_blocked()

        status, text = await answers(world, b"")
        assert (status, "32 HTTP connections" in text) == (503, True)
        assert "32 HTTP connections" in str(world.told("connection_refused")[0]["reason"])

        busy[0].stream.close()
        await wait_all_tasks_blocked()
        assert (await get(world, "/hello")).status == 200


async def test_idle_connections_keep_out_no_probe(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        idle = [await http_client(world) for _ in range(CONNECTIONS_MAX)]
        await idle[1].get("/hello")

        assert (await get(world, "/hello")).status == 200
        assert await idle[0].rest() == b""
        assert (await idle[1].get("/hello")).status == 200


async def test_the_server_survives_a_failing_accept(mock_clock: MockClock) -> None:
    async with served(mock_clock) as world:
        world.network.listeners["broker", 8480].fail_accept(24)
        await wait_all_tasks_blocked()
        await world.pass_time(0.2)

        assert (await get(world, "/hello")).status == 200
        assert len(world.told("accept_failed")) == 1
