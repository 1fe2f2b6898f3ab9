"""HTTP connections of the SQS front, over TCP of this machine."""

import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import final

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from tidelog.gateway.sqs.http import front_connection
from tidelog.gateway.sqs.http.front_connection import IDLE_S, REQUEST_S, HttpExchange
from tidelog.gateway.sqs.http.front_server import Answer, FrontLimits, FrontServer
from tidelog.gateway.sqs.http.messages import HttpRequest, HttpResponse
from tidelog.gateway.sqs.http.request_parser import BODY_MAX_BYTES
from tidelog.wire.env.real.real_env import real_env

Connect = Callable[[FrontServer], Awaitable[trio.SocketStream]]
Reply = tuple[int, dict[str, str], str]
"""Status, headers and body."""

HELLO = b"POST /hello HTTP/1.1\r\nContent-Length: 2\r\n\r\nhi"
WAIT = b"POST /wait HTTP/1.1\r\nContent-Length: 0\r\n\r\n"


@final
class Answers:
    """Answers the target and body of a request; `/wait` waits for `go`."""

    def __init__(self) -> None:
        self.go = trio.Event()
        self.requests: list[HttpRequest] = []
        self.ends: list[str] = []

    def stopped(self) -> HttpResponse:
        return HttpResponse(200, "text/plain", b"stopped")

    async def answer(self, request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
        self.requests.append(request)
        if request.target == b"/wait":
            exchange.on_stop = self.stopped
            try:
                await self.go.wait()
            except trio.Cancelled:
                self.ends.append("hung up" if exchange.has_hung_up else "stopped")
                raise
            exchange.on_stop = None
        if request.target == b"/defect":
            raise ValueError("a defect")
        return HttpResponse(200, "text/plain", request.target + b" " + request.body)


@asynccontextmanager
async def serving(
    answer: Answer, limits: FrontLimits | None = None
) -> AsyncGenerator[FrontServer, None]:
    env = real_env()
    listener = await env.network.listen("127.0.0.1", 0)
    server = FrontServer(env, listener, answer=answer, limits=limits or FrontLimits())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield server
        nursery.cancel_scope.cancel()


@pytest.fixture
async def connect() -> AsyncGenerator[Connect, None]:
    """Connect to servers; connections end with the test at the latest."""
    async with AsyncExitStack() as stack:

        async def open_stream(server: FrontServer) -> trio.SocketStream:
            stream = await trio.open_tcp_stream(*server.address)
            return await stack.enter_async_context(stream)

        yield open_stream


async def replies_of(
    stream: trio.SocketStream, count: int
) -> list[tuple[int, dict[str, str], str]]:
    """Read responses: status, headers and body of each."""
    data, found = b"", list[tuple[int, dict[str, str], str]]()
    while len(found) < count:
        head, end, rest = data.partition(b"\r\n\r\n")
        if end:
            status, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ") for line in lines)
            length = int(headers.get("Content-Length", 0))
            if len(rest) >= length:
                found.append((int(status.split()[1]), headers, rest[:length].decode()))
                data = rest[length:]
                continue
        more = await stream.receive_some()
        assert more, f"the connection ended after {found}"
        data += bytes(more)
    assert not data
    return found


async def rest_of(stream: trio.SocketStream) -> bytes:
    return b"".join([bytes(part) async for part in stream])


async def test_requests_of_a_connection_are_answered_in_their_order(connect: Connect) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(HELLO)
        (first,) = await replies_of(stream, 1)
        await stream.send_all(HELLO.replace(b"hello", b"again") + HELLO)
        second, third = await replies_of(stream, 2)

    assert first[0] == 200
    assert first[1]["Date"].endswith(" GMT")
    assert "Connection" not in first[1]
    assert [each[2] for each in (first, second, third)] == ["/hello hi", "/again hi", "/hello hi"]


async def test_a_request_may_come_byte_by_byte(connect: Connect) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        for index in range(len(HELLO)):
            await stream.send_all(HELLO[index : index + 1])
            await wait_all_tasks_blocked()
        (reply,) = await replies_of(stream, 1)

    assert reply[2] == "/hello hi"


async def test_a_reply_may_be_larger_than_buffers_of_the_system(connect: Connect) -> None:
    body = b"x" * (BODY_MAX_BYTES - 100)
    head = b"POST /big HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(head + body)
        (reply,) = await replies_of(stream, 1)

    assert reply[2] == "/big " + body.decode()


@pytest.mark.parametrize("version", [b"1.1\r\nConnection: close", b"1.0"])
async def test_a_client_may_end_the_connection_with_its_request(
    connect: Connect, version: bytes
) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(HELLO.replace(b"1.1", version))
        data = await rest_of(stream)

    assert data.endswith(b"Connection: close\r\n\r\n/hello hi")


async def test_a_client_may_wait_for_leave_to_send_its_body(connect: Connect) -> None:
    head, body = HELLO[:-2].replace(b"Content", b"Expect: 100-continue\r\nContent"), HELLO[-2:]
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(head)
        (leave,) = await replies_of(stream, 1)
        await stream.send_all(body)
        (reply,) = await replies_of(stream, 1)

    assert leave[0] == 100
    assert reply[2] == "/hello hi"


async def test_the_reply_to_a_head_request_has_no_body(connect: Connect) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(b"HEAD /x HTTP/1.1\r\nConnection: close\r\n\r\n")
        data = await rest_of(stream)

    assert b"Content-Length: 3\r\n" in data
    assert data.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("bad", "status"),
    [(b"nonsense\r\n\r\n", 400), (HELLO.replace(b": 2", b": 9%d" % BODY_MAX_BYTES), 413)],
)
async def test_a_bad_request_gets_its_reply_before_the_connection_ends(
    connect: Connect, bad: bytes, status: int
) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(HELLO + bad + b"x" * 1_000_000)
        good, refused = await replies_of(stream, 2)
        await stream.send_eof()
        assert await rest_of(stream) == b""

    assert good[2] == "/hello hi"
    assert refused[0] == status
    assert refused[1]["Connection"] == "close"


@pytest.mark.parametrize("is_abrupt", [False, True])
async def test_a_hang_up_cancels_an_answer_that_waits(connect: Connect, *, is_abrupt: bool) -> None:
    answers = Answers()
    async with serving(answers.answer) as server:
        async with await connect(server) as stream:
            await stream.send_all(WAIT)
            await wait_all_tasks_blocked()
            assert server.connection_count == 1
            if is_abrupt:
                linger = struct.pack("ii", 1, 0)
                stream.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        while server.connection_count:
            await wait_all_tasks_blocked()

    assert answers.ends == ["hung up"]


async def test_a_hang_up_is_noticed_behind_a_pipelined_request(connect: Connect) -> None:
    answers = Answers()
    async with serving(answers.answer) as server:
        async with await connect(server) as stream:
            await stream.send_all(WAIT + HELLO)
            await wait_all_tasks_blocked()
        while server.connection_count:
            await wait_all_tasks_blocked()

    assert answers.ends == ["hung up"]
    assert [each.target for each in answers.requests] == [b"/wait"]


async def test_a_client_that_has_ended_its_requests_gets_an_answer_that_does_not_wait(
    connect: Connect,
) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(HELLO)
        await stream.send_eof()
        data = await rest_of(stream)

    assert data.endswith(b"/hello hi")


async def test_a_stop_answers_what_waits_and_ends_idle_connections(connect: Connect) -> None:
    answers = Answers()
    async with serving(answers.answer) as server:
        idle, waiting = await connect(server), await connect(server)
        await waiting.send_all(WAIT)
        await wait_all_tasks_blocked()
        assert server.connection_count == 2
        await server.drain()
        assert await rest_of(idle) == b""
        assert (await rest_of(waiting)).endswith(b"Connection: close\r\n\r\nstopped")
        with pytest.raises(OSError, match=r".+"):
            await connect(server)


async def test_a_stop_answers_once_what_gets_its_answer_meanwhile(connect: Connect) -> None:
    answers = Answers()
    async with serving(answers.answer) as server:
        waiting = await connect(server)
        await waiting.send_all(WAIT)
        await wait_all_tasks_blocked()
        answers.go.set()
        await server.drain()
        data = await rest_of(waiting)

    assert data.endswith(b"stopped")
    assert data.count(b"HTTP/1.1 ") == 1


async def test_a_stop_waits_no_longer_than_its_limit(
    connect: Connect, autojump_clock: object
) -> None:
    del autojump_clock
    asked = trio.Event()

    async def answer(request: HttpRequest, exchange: HttpExchange) -> HttpResponse | None:
        del request, exchange
        asked.set()
        await trio.sleep_forever()

    async with serving(answer, FrontLimits(drain_s=7.0)) as server:
        stream = await connect(server)
        await stream.send_all(HELLO)
        await asked.wait()
        began_at = trio.current_time()
        await server.drain()
        assert trio.current_time() - began_at == pytest.approx(7.0)


async def test_a_further_connection_takes_the_place_of_an_idle_one(connect: Connect) -> None:
    answers = Answers()
    async with serving(answers.answer, FrontLimits(connections=2)) as server:
        busy, idle = await connect(server), await connect(server)
        await busy.send_all(WAIT)
        await wait_all_tasks_blocked()
        further = await connect(server)
        assert await rest_of(idle) == b""
        await further.send_all(WAIT)
        await wait_all_tasks_blocked()
        refused = await connect(server)
        (reply,) = await replies_of(refused, 1)
        answers.go.set()
        await replies_of(busy, 1)
        await replies_of(further, 1)

    assert reply[0] == 503
    assert server.refused_count == 1


async def test_large_bodies_share_a_limit(connect: Connect) -> None:
    async with serving(Answers().answer, FrontLimits(body_bytes=300_000)) as server:
        first, second = await connect(server), await connect(server)
        body = b"x" * 200_000
        head = b"POST /big HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
        await first.send_all(head + body[:-1])
        await wait_all_tasks_blocked()
        await second.send_all(head + body)
        (refused,) = await replies_of(second, 1)
        await first.send_all(body[-1:])
        (reply,) = await replies_of(first, 1)
        third = await connect(server)
        await third.send_all(head + body)
        (again,) = await replies_of(third, 1)

    assert refused[0] == 503
    assert reply[0] == again[0] == 200


@pytest.mark.parametrize(
    ("sent", "wait_s", "reply"),
    [(b"", IDLE_S, b""), (HELLO[:-1], REQUEST_S, b"HTTP/1.1 408 ")],
)
async def test_a_client_that_sends_too_slowly_loses_its_connection(
    connect: Connect, sent: bytes, wait_s: float, reply: bytes
) -> None:
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        if sent:
            await stream.send_all(sent)
        await wait_all_tasks_blocked()
        (connection,) = server.connections
        connection.tidy(trio.current_time() + wait_s - 1)
        assert server.connection_count == 1
        connection.tidy(trio.current_time() + wait_s + 1)
        data = await rest_of(stream)

    assert data.startswith(reply)
    assert bool(data) is bool(reply)


async def test_a_client_that_reads_no_reply_loses_its_connection(connect: Connect) -> None:
    body = b"x" * (BODY_MAX_BYTES - 100)
    head = b"POST /big HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    async with serving(Answers().answer) as server:
        stream = await connect(server)
        await stream.send_all(head + body)
        (connection,) = server.connections
        while connection.phase is not front_connection.Phase.SENDING:
            await wait_all_tasks_blocked()
        connection.tidy(trio.current_time() + front_connection.SEND_S + 1)
        while server.connection_count:
            await wait_all_tasks_blocked()


async def test_a_defect_ends_its_connection_alone(
    connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Answers().answer) as server:
        other = await connect(server)
        async with await connect(server) as stream:
            await stream.send_all(HELLO.replace(b"/hello", b"/defect"))
            assert await rest_of(stream) == b""
        await other.send_all(HELLO)
        await replies_of(other, 1)

    assert "an HTTP connection failed unexpectedly" in caplog.text
