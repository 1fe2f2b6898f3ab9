"""Integration of `wire` over real sockets: one server, some clients, large attachments."""

import tempfile
from collections.abc import AsyncIterator
from typing import BinaryIO, NamedTuple

import pytest
import trio

from tests.wire.batches import stored_batch
from tests.wire.brokers import APIS, HELLO_REPLY
from tidelog.wire.env.env import Stream
from tidelog.wire.env.real.tcp import TcpListener, TcpNetwork
from tidelog.wire.errors import ConnectionLostError, WireFormatError
from tidelog.wire.messages.fetch import FetchReply, FetchRequest, PartitionFetched
from tidelog.wire.messages.handshake import HelloRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import RefusedRequest, Request, ServerConnection
from tidelog.wire.transport.rpc import RpcConnection, open_rpc
from tidelog.wire.transport.write_buffer import FileRegion, WriteBuffer

BATCH_COUNT = 20_000
BATCH = bytes(stored_batch())
REGION_BYTES = len(BATCH) * BATCH_COUNT


class LogFile(NamedTuple):
    """A real file; see `wire.env.env.FileRegionSource`."""

    file: BinaryIO

    def fileno(self) -> int | None:
        return self.file.fileno()

    def read_at(self, position: int, length: int) -> bytes:
        raise NotImplementedError


class Server:
    """A server that answers hellos, and every fetch with a large region of a file."""

    def __init__(self, listener: TcpListener, file: BinaryIO) -> None:
        self.address = listener.address
        self.failures: list[Exception] = []
        self._listener = listener
        self._source = LogFile(file)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._serve, await self._listener.accept())

    async def _serve(self, stream: Stream) -> None:
        connection = ServerConnection(APIS, max_frame_bytes=1 << 20)
        write_buffer = WriteBuffer(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_buffer.run)
            try:
                while True:
                    await stream.wait_readable()
                    received = stream.receive_nowait(connection.decoder.get_buffer())
                    if received is None:
                        continue
                    if received == 0:
                        break
                    connection.decoder.bytes_received(received)
                    while (request := connection.next_request()) is not None:
                        self._answer(write_buffer, request)
                    write_buffer.flush()
                    await write_buffer.wait_below(1 << 20)
            except (WireFormatError, ConnectionLostError) as error:
                self.failures.append(error)
            stream.close()
            nursery.cancel_scope.cancel()

    def _answer(self, write_buffer: WriteBuffer, request: Request | RefusedRequest) -> None:
        if isinstance(request, RefusedRequest):
            write_buffer.put(request.reply)
        elif isinstance(request.message, HelloRequest):
            write_buffer.put(
                api.HELLO.encode_reply(
                    HELLO_REPLY, version=1, correlation_id=request.correlation_id
                )
            )
        else:
            write_buffer.put(
                api.FETCH.encode_reply(
                    FetchReply([PartitionFetched(REGION_BYTES, 0, 0)]),
                    version=request.version,
                    correlation_id=request.correlation_id,
                    attachment_length=REGION_BYTES,
                )
            )
            write_buffer.put(FileRegion(self._source, len(BATCH), REGION_BYTES))


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    with tempfile.TemporaryFile() as file:
        file.write(BATCH * (BATCH_COUNT + 1))
        file.flush()
        listener = await TcpNetwork().listen("127.0.0.1", 0)
        server = Server(listener, file)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(server.run)
            yield server
            nursery.cancel_scope.cancel()
        listener.close()


async def test_clients_fetch_large_regions_at_the_same_time(server: Server) -> None:
    intact: list[bool] = []

    async def fetch(connection: RpcConnection) -> None:
        def take(reply: FetchReply, attachment: memoryview) -> bool:
            (result,) = reply.results
            return (
                len(attachment) == result.batch_bytes and bytes(attachment) == BATCH * BATCH_COUNT
            )

        request = FetchRequest(0, 0, REGION_BYTES, [])
        intact.append(await connection.call(api.FETCH, request, take=take))

    async def client() -> None:
        async with (
            open_rpc(
                TcpNetwork(), *server.address, client_id="test", client_version="1"
            ) as connection,
            trio.open_nursery() as calls,
        ):
            for _ in range(3):
                calls.start_soon(fetch, connection)

    async with trio.open_nursery() as clients:
        for _ in range(3):
            clients.start_soon(client)

    assert intact == [True] * 9
    assert server.failures == []


async def test_a_peer_of_another_protocol_does_not_disturb_other_clients(server: Server) -> None:
    async with open_rpc(
        TcpNetwork(), *server.address, client_id="test", client_version="1"
    ) as connection:
        stranger = await TcpNetwork().connect(*server.address)
        stranger.send_nowait([b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"])
        await stranger.wait_readable()
        try:
            ended = stranger.receive_nowait(memoryview(bytearray(10))) == 0
        except ConnectionLostError:
            ended = True
        stranger.close()
        reply = await connection.ask(api.FETCH, FetchRequest(0, 0, 1, []))

    assert ended
    assert len(reply.results) == 1
    assert [type(failure) for failure in server.failures] == [WireFormatError]
