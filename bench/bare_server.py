"""The ceiling: bare trio servers with the least possible work for the same bytes.

    python -m bench.bare_server

A client sends its order as JSON on the first line, and then frames of one fixed size:

`produce`   receive, check the batch's CRC-32C, write it behind the last one, answer
`sync`      the same, with an fdatasync before the answer
`fetch`     answer every frame with the next region of some files, by sendfile
`echo`      answer every frame with as many bytes as the broker would

There is one loop, one buffer and no protocol: any further time is the cost of the broker.
"""

import json
import os
import struct

import msgspec
import trio
from crc32c import crc32c

from tidelog.wire.protocol.frame import FrameKind, encode_frame

_BUFFER_BYTES = 256 << 10
_LINE_BYTES_MAX = 64 << 10
_READY = b"\n"
_BATCH_CRC = struct.Struct("<I")
_BATCH_CRC_AT = 20
_BATCH_CRC_FROM = 32


class Order(msgspec.Struct, frozen=True):
    """Order of one connection."""

    mode: str
    frame_bytes: int
    """Length of every frame of the client."""
    batch_bytes: int = 0
    """Length of the batch at the end of every frame."""
    path: str = ""
    """The file to write, which must not exist."""
    reply_header_bytes: int = 0
    """Length of the header in every reply, without the prefix."""
    files: list[tuple[str, int, int]] = []
    """For `fetch`: files, with start and end positions."""
    region_bytes: int = 0
    """For `fetch`: bytes of each reply."""
    reply_bytes: int = 0
    """For `echo`: bytes of each reply, with its prefix."""


def _reply(order: Order) -> bytes:
    """Return a reply as large as a broker's."""
    return encode_frame(
        FrameKind.REPLY,
        api_key=0,
        api_version=1,
        correlation_id=0,
        header=bytes(order.reply_header_bytes),
        attachment_length=order.region_bytes,
    )


async def _read_order(sock: trio.socket.SocketType) -> Order:
    line = b""
    while not line.endswith(b"\n"):
        received = await sock.recv(_LINE_BYTES_MAX)
        if not received:
            raise EOFError("the client closed the connection before its order")
        line += received
    return msgspec.json.decode(line, type=Order)


async def _write_batches(sock: trio.socket.SocketType, order: Order) -> None:
    frame_bytes, batch_at = order.frame_bytes, order.frame_bytes - order.batch_bytes
    is_sync = order.mode == "sync"
    reply = _reply(order)
    buffer = memoryview(bytearray(max(_BUFFER_BYTES, 2 * frame_bytes)))
    position = end = 0
    descriptor = os.open(order.path, os.O_RDWR | os.O_CREAT | os.O_EXCL)
    await sock.send(_READY)
    try:
        while received := await sock.recv_into(buffer[end:]):
            end += received
            start = 0
            while end - start >= frame_bytes:
                batch = buffer[start + batch_at : start + frame_bytes]
                if _BATCH_CRC.unpack_from(batch, _BATCH_CRC_AT)[0] != crc32c(
                    batch[_BATCH_CRC_FROM:]
                ):
                    raise ValueError("a batch does not match its CRC-32C")
                os.pwrite(descriptor, batch, position)
                position += len(batch)
                start += frame_bytes
                if is_sync:
                    os.fdatasync(descriptor)
                await sock.send(reply)
            buffer[: end - start] = buffer[start:end]
            end -= start
    finally:
        os.close(descriptor)


async def _send_regions(sock: trio.socket.SocketType, order: Order) -> None:
    reply = _reply(order)
    regions = _regions(order)
    pending = served = 0
    await sock.send(_READY)
    while received := len(await sock.recv(_BUFFER_BYTES)):
        pending += received
        while pending >= order.frame_bytes:
            pending -= order.frame_bytes
            descriptor, position = regions[served % len(regions)]
            served += 1
            await _send_file(sock, reply, descriptor, position=position, length=order.region_bytes)


async def _echo(sock: trio.socket.SocketType, order: Order) -> None:
    reply = bytes(order.reply_bytes)
    buffer = memoryview(bytearray(_BUFFER_BYTES))
    pending = 0
    await sock.send(_READY)
    while received := await sock.recv_into(buffer):
        pending += received
        while pending >= order.frame_bytes:
            pending -= order.frame_bytes
            await sock.send(reply)


def _regions(order: Order) -> list[tuple[int, int]]:
    regions: list[tuple[int, int]] = []
    for path, begin, end in order.files:
        descriptor = os.open(path, os.O_RDONLY)
        starts = range(begin, end - order.region_bytes + 1, order.region_bytes)
        regions += [(descriptor, start) for start in starts]
    return regions


async def _send_file(
    sock: trio.socket.SocketType, head: bytes, descriptor: int, *, position: int, length: int
) -> None:
    await sock.send(head, trio.socket.MSG_MORE)
    end = position + length
    while position < end:
        try:
            sent = os.sendfile(sock.fileno(), descriptor, position, end - position)
        except BlockingIOError:
            await trio.lowlevel.wait_writable(sock)
        else:
            if not sent:
                raise EOFError("a file is shorter than it was")
            position += sent


async def _serve(sock: trio.socket.SocketType) -> None:
    sock.setsockopt(trio.socket.IPPROTO_TCP, trio.socket.TCP_NODELAY, 1)
    with sock:
        try:
            order = await _read_order(sock)
            if order.mode == "fetch":
                await _send_regions(sock, order)
            elif order.mode == "echo":
                await _echo(sock, order)
            else:
                await _write_batches(sock, order)
        except ConnectionError:
            pass


async def main() -> None:
    """Serve until killed."""
    # Not `trio.SocketStream`: its TCP_NOTSENT_LOWAT makes large replies wait for timers.
    with trio.socket.socket() as listener:
        await listener.bind(("127.0.0.1", 0))
        listener.listen()
        print(json.dumps({"address": f"127.0.0.1:{listener.getsockname()[1]}"}), flush=True)
        async with trio.open_nursery() as nursery:
            while True:
                sock, _ = await listener.accept()
                nursery.start_soon(_serve, sock)


if __name__ == "__main__":
    trio.run(main)
