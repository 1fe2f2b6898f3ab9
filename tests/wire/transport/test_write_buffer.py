"""A write buffer sends its pieces once, whole and in order, whatever the stream accepts."""

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import wait_all_tasks_blocked

from tests.wire.streams import FakeFile, FakeStream
from tidelog.wire.env.env import BytesLike
from tidelog.wire.transport.write_buffer import FileRegion, WriteBuffer

FILE = FakeFile(bytes(range(100)))

pieces = st.lists(
    st.binary(max_size=30)
    | st.binary(max_size=30).map(bytearray)
    | st.builds(FileRegion, st.just(FILE), st.integers(0, 50), st.integers(0, 50)),
    max_size=10,
)


def content(piece: BytesLike | FileRegion) -> bytes:
    if isinstance(piece, FileRegion):
        return piece.source.read_at(piece.position, piece.length)
    return bytes(piece)


def test_a_flush_sends_the_accepted_bytes_at_once() -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    write_buffer.put(b"one")
    write_buffer.put(bytearray(b"two"))
    write_buffer.put(memoryview(b"three"))
    assert stream.sent == b""
    assert write_buffer.pending_bytes == 11
    write_buffer.flush()

    assert stream.sent == b"onetwothree"
    assert write_buffer.pending_bytes == 0


@pytest.mark.parametrize("is_flushed", [True, False])
def test_what_is_followed_leaves_with_what_follows(is_flushed: bool) -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    write_buffer.send([b"one", b"two"], 6, is_followed=True)
    assert stream.sent == b""
    if is_flushed:
        write_buffer.flush()
        assert stream.sent == b"onetwo"
    write_buffer.send([b"three"], 5)

    assert stream.sent == b"onetwothree"
    assert write_buffer.pending_bytes == 0


def test_a_region_of_a_file_is_sent_in_its_place() -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    write_buffer.put(b"<")
    write_buffer.put(FileRegion(FakeFile(b"0123456789"), 3, 4))
    write_buffer.put(b">")
    write_buffer.flush()

    assert stream.sent == b"<3456>"


@given(put=pieces, at_once=st.integers(1, 40), allowances=st.lists(st.integers(1, 60)))
def test_any_pieces_are_sent_whole_and_in_order(
    put: list[bytes | bytearray | FileRegion], at_once: int, allowances: list[int]
) -> None:
    expected = b"".join(map(content, put))
    stream = FakeStream(allowance=0, at_once=at_once)
    write_buffer = WriteBuffer(stream)

    async def send_all() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(write_buffer.run)
            for piece in put:
                write_buffer.put(piece)
                write_buffer.flush()
            for allowance in [*allowances, 1000]:
                stream.allow(allowance)
                await wait_all_tasks_blocked()
                assert write_buffer.pending_bytes == len(expected) - len(stream.sent)
            nursery.cancel_scope.cancel()

    trio.run(send_all)
    assert stream.sent == expected


async def test_run_sends_the_rest_when_the_stream_is_writable() -> None:
    stream = FakeStream(allowance=4)
    write_buffer = WriteBuffer(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        write_buffer.put(b"hello, ")
        write_buffer.flush()
        assert stream.sent == b"hell"
        write_buffer.put(b"world")
        write_buffer.flush()
        assert stream.sent == b"hell", "nothing overtakes what waits"
        stream.allow(100)
        await wait_all_tasks_blocked()
        assert stream.sent == b"hello, world"
        write_buffer.put(b"!")
        write_buffer.flush()
        assert stream.sent == b"hello, world!"
        nursery.cancel_scope.cancel()


async def test_empty_pieces_are_left_out() -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        write_buffer.put(b"")
        write_buffer.put(FileRegion(FILE, 10, 0))
        write_buffer.put(b"end")
        write_buffer.flush()
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert stream.sent == b"end"
    assert write_buffer.pending_bytes == 0


def test_more_pieces_than_one_call_accepts_are_sent() -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    for number in range(1000):
        write_buffer.put(b"%d," % number)
    write_buffer.flush()

    assert stream.sent == b"".join(b"%d," % number for number in range(1000))


async def test_wait_below_returns_when_enough_was_sent() -> None:
    stream = FakeStream(allowance=0)
    write_buffer = WriteBuffer(stream)
    write_buffer.put(bytes(100))
    write_buffer.flush()
    returned: list[int] = []

    async def wait(limit: int) -> None:
        await write_buffer.wait_below(limit)
        returned.append(limit)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        for limit in (100, 60, 0):
            nursery.start_soon(wait, limit)
        await wait_all_tasks_blocked()
        assert returned == [100]
        stream.allow(39)
        await wait_all_tasks_blocked()
        assert returned == [100]
        stream.allow(1)
        await wait_all_tasks_blocked()
        assert returned == [100, 60]
        stream.allow(60)
        await wait_all_tasks_blocked()
        assert returned == [100, 60, 0]
        nursery.cancel_scope.cancel()


async def test_a_broken_stream_is_closed_and_ends_everything() -> None:
    stream = FakeStream(allowance=0)
    write_buffer = WriteBuffer(stream)
    write_buffer.put(b"lost")
    write_buffer.flush()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        nursery.start_soon(write_buffer.wait_below, 0)
        await wait_all_tasks_blocked()
        stream.fail("reset by peer")

    assert stream.is_closed
    assert write_buffer.pending_bytes == 0
    write_buffer.put(b"ignored")
    write_buffer.flush()
    await write_buffer.wait_below(0)
    await write_buffer.run()
    assert write_buffer.pending_bytes == 0


async def test_a_stream_that_breaks_during_a_flush_ends_run() -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        await wait_all_tasks_blocked()
        stream.fail("reset by peer")
        write_buffer.put(b"lost")
        write_buffer.flush()

    assert stream.is_closed


def test_a_file_that_is_shorter_than_its_region_breaks_the_connection() -> None:
    stream = FakeStream()
    write_buffer = WriteBuffer(stream)

    write_buffer.put(FileRegion(FakeFile(b"short"), 0, 6))
    write_buffer.flush()

    assert stream.is_closed


async def test_run_can_be_cancelled_and_started_again() -> None:
    stream = FakeStream(allowance=0)
    write_buffer = WriteBuffer(stream)
    write_buffer.put(b"later")
    write_buffer.flush()

    with trio.move_on_after(0):
        await write_buffer.run()
    stream.allow(100)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert stream.sent == b"later"


@pytest.mark.parametrize("allowance", [0, 3])
async def test_a_piece_that_waits_is_not_copied(allowance: int) -> None:
    stream = FakeStream(allowance=allowance)
    write_buffer = WriteBuffer(stream)
    buffer = bytearray(b"first state")

    write_buffer.put(buffer)
    write_buffer.flush()
    buffer[6:] = b"STATE"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_buffer.run)
        stream.allow(100)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()

    assert stream.sent == b"first STATE"
