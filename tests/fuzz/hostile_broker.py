"""A hostile broker that answers clients with mutated replies."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from random import Random
from traceback import format_exception
from typing import Final

import trio

import tidelog
from tests.fuzz.inputs import Inputs, Targets
from tidelog.coordinator.raft.membership import Identity
from tidelog.wire.errors import TidelogError
from tidelog.wire.messages.handshake import ApiVersions, HelloReply
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import FrameDecoder

_TIMEOUT_S: Final = 2.0
_REQUESTS_MAX: Final = 200
"""Requests of one call to a hostile broker: a client that retries at once would send thousands."""
_HONEST_SHARE: Final = 0.5


async def deceive_clients(seed: int, seconds: float) -> list[str]:
    """Let clients work with a hostile broker for a time; return what went wrong."""
    random, problems = Random(seed), list[str]()
    inputs = Inputs(random, Targets(Identity(1, b"a"), [Identity(2, b"b")]))
    count = 0
    with trio.move_on_after(seconds):
        while True:
            count += 1
            call = random.choice(CALLS)
            problem = await _one(inputs, random, call)
            if problem:
                problems.append(f"call {count} ({call.__name__}): {problem}")
    return problems


async def _one(
    inputs: Inputs, random: Random, call: Callable[[tidelog.Client], Awaitable[None]]
) -> str:
    """Let one client do one thing; return what went wrong, empty if nothing did."""
    requests = 0
    problem = ""

    async def serve(stream: trio.SocketStream) -> None:
        nonlocal requests
        decoder = FrameDecoder(max_frame_bytes=16 << 20)
        while data := await stream.receive_some(65536):
            while data:
                space = decoder.get_buffer()
                length = min(len(space), len(data))
                space[:length], data = data[:length], data[length:]
                decoder.bytes_received(length)
                while (frame := decoder.next_frame()) is not None:
                    requests += 1
                    honest = _honest(frame.api_key, port, frame.correlation_id)
                    if honest is None or (requests > 1 and random.random() > _HONEST_SHARE):
                        honest = inputs.reply_to(
                            frame.api_key, frame.api_version, frame.correlation_id
                        )
                    await stream.send_all(honest)

    async def serve_safely(stream: trio.SocketStream) -> None:
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            await serve(stream)

    has_ended = True
    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve_safely, 0, host="127.0.0.1"))
        port = listeners[0].socket.getsockname()[1]
        with trio.move_on_after(5 * _TIMEOUT_S) as waiting:
            try:
                async with tidelog.connect(
                    f"127.0.0.1:{port}", request_timeout=_TIMEOUT_S, connect_timeout=1
                ) as client:
                    await call(client)
            except* TidelogError:
                pass
            except* Exception as errors:  # noqa: BLE001  (a defect of the client)
                problem = "".join(format_exception(errors)[-4:])
        has_ended = not waiting.cancelled_caught
        nursery.cancel_scope.cancel()
    if requests > _REQUESTS_MAX:
        return f"{requests} requests"
    return problem if has_ended else "no end"


def _honest(api_key: int, port: int, correlation_id: int) -> bytes | None:
    """Return the reply of a good broker to what every client asks first."""
    if api_key == api.HELLO.key:
        versions = [ApiVersions(int(each.key), 1, each.max_version) for each in api.APIS]
        hello = HelloReply("1", "a cluster", 1, versions, 16 << 20, 64)
        return api.HELLO.encode_reply(hello, version=1, correlation_id=correlation_id)
    if api_key == api.METADATA.key:
        topic = TopicMetadata("orders", b"x" * 16, [PartitionMetadata(0, 1, 1)])
        reply = MetadataReply("a cluster", [BrokerAddress(1, "127.0.0.1", port, "")], [topic], 1)
        return api.METADATA.encode_reply(reply, version=3, correlation_id=correlation_id)
    return None


async def _consume(client: tidelog.Client) -> None:
    with trio.move_on_after(2 * _TIMEOUT_S):
        async with client.consumer("orders", auto_offset_reset="earliest") as consumer:
            async for _ in consumer:
                pass


async def _produce(client: tidelog.Client) -> None:
    async with client.producer(delivery_timeout=2 * _TIMEOUT_S) as producer:
        await producer.send("orders", b"value")


async def _describe(client: tidelog.Client) -> None:
    await client.admin.describe_cluster()


async def _receive(client: tidelog.Client) -> None:
    await client.queue("orders").receive(10, wait=0.2)


async def _consume_as_member(client: tidelog.Client) -> None:
    with trio.move_on_after(2 * _TIMEOUT_S):
        async with client.consumer("orders", group_id="billing") as consumer:
            async for _ in consumer:
                pass


async def _send(client: tidelog.Client) -> None:
    with trio.move_on_after(2 * _TIMEOUT_S):
        await client.queue("orders").send_batch([b"one", b"two"])


async def _work(client: tidelog.Client) -> None:
    async def handle(message: tidelog.Message) -> None:
        await message.read()

    with trio.move_on_after(2 * _TIMEOUT_S):
        await client.queue("orders").work(handle)


async def _inspect(client: tidelog.Client) -> None:
    queue, group = client.queue("orders"), "billing"
    for ask in (
        queue.peek,
        queue.history,
        queue.counts,
        queue.redrive_status,
        partial(queue.cancel_batch, ["0-1", "0-2"]),
        partial(client.admin.list_offsets, "orders", "latest"),
        partial(client.admin.describe_group, group),
        partial(client.admin.reset_offsets, group, "orders", "earliest"),
        client.admin.list_reassignments,
    ):
        with trio.move_on_after(_TIMEOUT_S / 2), suppress(TidelogError):
            await ask()


CALLS: Final = (
    *(_consume, _produce, _describe, _receive),
    *(_consume_as_member, _send, _work, _inspect),
)
"""What a client does; each ends by itself, or within some seconds."""
