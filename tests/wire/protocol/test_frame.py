"""Frames are decoded as they were encoded, however the bytes arrive; other bytes are refused."""

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.batches import flipped_bits
from tidelog.wire.errors import WireFormatError
from tidelog.wire.protocol.frame import PREFIX_SIZE, Frame, FrameDecoder, FrameKind, encode_frame

KiB = 1024
FRAME_BYTES_MAX = 256 * KiB
READ_AHEAD = 128 * KiB
FIRST = 1 * KiB
INITIAL = 16 * KiB


class Copied(NamedTuple):
    """A frame whose bytes outlive the decoder's buffer."""

    kind: FrameKind
    api_key: int
    api_version: int
    correlation_id: int
    header: bytes
    attachment: bytes


def copied(frame: Frame) -> Copied:
    return Copied(
        frame.kind,
        frame.api_key,
        frame.api_version,
        frame.correlation_id,
        bytes(frame.header),
        bytes(frame.attachment),
    )


def encoded(frame: Copied) -> bytes:
    return (
        encode_frame(
            frame.kind,
            api_key=frame.api_key,
            api_version=frame.api_version,
            correlation_id=frame.correlation_id,
            header=frame.header,
            attachment_length=len(frame.attachment),
        )
        + frame.attachment
    )


def receive(decoder: FrameDecoder, data: bytes | bytearray, *, at_once: int) -> list[Copied]:
    """Feed the data in pieces of at most `at_once` bytes, and return the frames."""
    frames: list[Copied] = []
    rest = memoryview(data)
    while rest:
        buffer = decoder.get_buffer()
        count = min(len(buffer), len(rest), at_once)
        buffer[:count] = rest[:count]
        rest = rest[count:]
        decoder.bytes_received(count)
        while (frame := decoder.next_frame()) is not None:
            frames.append(copied(frame))
    return frames


def new_decoder() -> FrameDecoder:
    return FrameDecoder(max_frame_bytes=FRAME_BYTES_MAX)


SMALL = Copied(FrameKind.REQUEST, 8, 1, 7, b"header", b"")
WITH_ATTACHMENT = Copied(FrameKind.REPLY, 0xFFFF, 0xFFFF, 0xFFFF_FFFF, b"header", b"attachment")
EMPTY = Copied(FrameKind.ERROR, 0, 0, 0, b"", b"")
LARGE = Copied(FrameKind.REQUEST, 8, 1, 9, b"header", bytes(200 * KiB))
SAMPLES = [SMALL, WITH_ATTACHMENT, EMPTY, LARGE]
STREAM = b"".join(map(encoded, SAMPLES * 2))

some_frames = st.lists(
    st.builds(
        Copied,
        st.sampled_from(FrameKind),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF),
        st.integers(0, 0xFFFF_FFFF),
        st.binary(max_size=60),
        st.binary(max_size=60) | st.integers(0, 40 * KiB).map(bytes),
    ),
    max_size=6,
)


# Round trips


@pytest.mark.parametrize("at_once", [5, 23, 24, 25, 1000, 16 * KiB, 1 << 20])
def test_frames_come_out_as_they_went_in(at_once: int) -> None:
    assert receive(new_decoder(), STREAM, at_once=at_once) == SAMPLES * 2


@pytest.mark.parametrize("frame", [SMALL, WITH_ATTACHMENT, EMPTY], ids=["small", "both", "empty"])
def test_a_frame_may_arrive_byte_by_byte(frame: Copied) -> None:
    assert receive(new_decoder(), encoded(frame), at_once=1) == [frame]


@given(frames=some_frames, at_once=st.integers(10, 50 * KiB))
def test_any_frames_come_out_as_they_went_in(frames: list[Copied], at_once: int) -> None:
    data = b"".join(map(encoded, frames))

    assert receive(new_decoder(), data, at_once=at_once) == frames


@pytest.mark.parametrize("frame", [SMALL, WITH_ATTACHMENT, EMPTY], ids=["small", "both", "empty"])
def test_a_frame_cut_off_anywhere_is_waited_for(frame: Copied) -> None:
    data = encoded(frame)

    for length in range(len(data)):
        decoder = new_decoder()
        assert receive(decoder, data[:length], at_once=1 << 20) == []
        assert receive(decoder, data[length:], at_once=1 << 20) == [frame]


@given(frames=some_frames, at_once=st.integers(10, 50 * KiB))
def test_frames_that_arrive_in_rooms_come_out_as_they_went_in(
    frames: list[Copied], at_once: int
) -> None:
    decoder, found = new_decoder(), list[Copied]()
    rest = memoryview(b"".join(map(encoded, frames)))
    while rest:
        is_full = decoder.is_full
        room = decoder.get_room()
        assert (room is None) == is_full
        room = room or decoder.get_room(is_lent=True)
        assert room
        assert len(room) <= decoder.missing_bytes + READ_AHEAD
        count = min(len(room), len(rest), at_once)
        room[:count] = rest[:count]
        rest = rest[count:]
        decoder.bytes_received(count)
        while (frame := decoder.next_frame()) is not None:
            found.append(copied(frame))
            assert decoder.is_empty == (decoder.buffered_bytes == 0)
        assert decoder.is_empty == (decoder.buffered_bytes == 0)

    assert found == frames


def test_trailing_bytes_stay_for_the_next_frame() -> None:
    decoder = new_decoder()
    data = encoded(SMALL)

    assert receive(decoder, data + data[:10], at_once=1 << 20) == [SMALL]
    assert decoder.buffered_bytes == 10
    assert receive(decoder, data[10:], at_once=1 << 20) == [SMALL]
    assert decoder.buffered_bytes == 0


def test_views_of_a_frame_are_valid_until_the_next_get_buffer() -> None:
    decoder = new_decoder()
    other = SMALL._replace(header=b"HEADER")
    data = encoded(SMALL) + encoded(other)
    receive(decoder, data, at_once=len(data))  # The next buffer is a full one.
    decoder.get_buffer()[: len(data)] = data
    decoder.bytes_received(len(data))

    first = decoder.next_frame()
    second = decoder.next_frame()

    assert first is not None
    assert second is not None
    assert decoder.next_frame() is None
    assert (copied(first), copied(second)) == (SMALL, other)
    decoder.get_buffer()[: len(data)] = bytes(len(data))
    assert bytes(first.header) == bytes(6), "the next bytes are received into the same memory"


# Damage


@pytest.mark.parametrize("frame", [SMALL, WITH_ATTACHMENT, EMPTY], ids=["small", "both", "empty"])
def test_no_flipped_bit_makes_another_frame(frame: Copied) -> None:
    protected = encoded(frame)[: PREFIX_SIZE + len(frame.header)]

    for bit, damaged in flipped_bits(protected):
        frames: list[Copied] = []
        decoder = new_decoder()
        try:
            frames = receive(decoder, damaged + frame.attachment, at_once=1 << 20)
        except WireFormatError:
            continue
        assert frames == [], f"bit {bit}"
        # The decoder waits only for a longer header, because the CRC needs it.
        assert 16 <= bit // 8 < 20 or bit // 8 < 4, f"bit {bit}"
        assert decoder.missing_bytes > len(frame.attachment)


def test_a_damaged_length_of_an_attachment_is_noticed_before_it_is_waited_for() -> None:
    data = bytearray(encoded(SMALL))
    data[1] ^= 1

    with pytest.raises(WireFormatError, match="does not match its CRC-32C"):
        receive(new_decoder(), data, at_once=1)


HTTP = b"GET / HTTP/1.1\r\nHost: example\r\n\r\n"
TLS = bytes.fromhex("16030100c8010000c40303") + bytes(range(50))
NOT_FRAMES = {
    "an HTTP request": HTTP,
    "a TLS hello": TLS,
    "an SSH banner": b"SSH-2.0-OpenSSH_9.6\r\n" + bytes(10),
    "zeros": bytes(24),
    "ones": b"\xff" * 24,
    "text": b"hello, is there any broker there??",
}


@pytest.mark.parametrize("name", NOT_FRAMES)
@pytest.mark.parametrize("at_once", [1, 1000])
@pytest.mark.parametrize("max_frame_bytes", [FRAME_BYTES_MAX, 256 << 20, 2**32 - 1])
def test_what_is_not_a_frame_is_refused(name: str, at_once: int, max_frame_bytes: int) -> None:
    decoder = FrameDecoder(max_frame_bytes=max_frame_bytes)

    why = "the client speaks TLS" if name == "a TLS hello" else "the bytes begin with"
    with pytest.raises(WireFormatError, match=why):
        receive(decoder, NOT_FRAMES[name], at_once=at_once)
    assert decoder.capacity <= INITIAL


def test_the_error_shows_the_bytes_at_which_no_frame_begins() -> None:
    decoder = new_decoder()
    data = encoded(SMALL) + b"not a frame and more than a prefix"
    decoder.get_buffer()[: len(data)] = data
    decoder.bytes_received(len(data))
    assert decoder.next_frame() is not None

    with pytest.raises(WireFormatError, match="the bytes begin with b'not a fr'"):
        decoder.next_frame()


def test_the_error_for_a_foreign_peer_shows_its_bytes() -> None:
    with pytest.raises(WireFormatError) as caught:
        receive(new_decoder(), HTTP, at_once=1000)

    assert str(caught.value) == (
        "a frame of 542393671 bytes is announced, the limit is 262144"
        " (is this a tidelog peer? the bytes begin with b'GET / HT')"
    )


def test_a_greeting_shorter_than_a_prefix_is_refused_at_once() -> None:
    with pytest.raises(WireFormatError, match=r"the bytes begin with b'\+PONG\\r\\n'\)"):
        receive(new_decoder(), b"+PONG\r\n", at_once=1000)


@pytest.mark.parametrize("kind", [0, 4, 255])
def test_an_unknown_kind_is_refused(kind: int) -> None:
    data = bytearray(encoded(SMALL))
    data[8] = kind

    with pytest.raises(WireFormatError, match="not a tidelog frame"):
        receive(new_decoder(), data, at_once=1000)


def test_a_header_longer_than_its_frame_is_refused() -> None:
    data = bytearray(encoded(SMALL))
    data[16:20] = (7).to_bytes(4, "little")

    with pytest.raises(WireFormatError, match="not a tidelog frame"):
        receive(new_decoder(), data, at_once=1000)


# Memory


def announced(length: int, *, header: bytes = b"header") -> bytes:
    """Return a valid prefix and header that announce `length` bytes in all."""
    return encode_frame(
        FrameKind.REQUEST,
        api_key=8,
        api_version=1,
        correlation_id=7,
        header=header,
        attachment_length=length - len(header),
    )


def test_a_frame_at_the_limit_is_taken_and_a_longer_one_is_refused() -> None:
    at_limit = Copied(FrameKind.REQUEST, 8, 1, 7, b"header", bytes(FRAME_BYTES_MAX - 6))

    assert receive(new_decoder(), encoded(at_limit), at_once=1 << 20) == [at_limit]
    with pytest.raises(WireFormatError, match="262145 bytes is announced, the limit is 262144"):
        receive(new_decoder(), announced(FRAME_BYTES_MAX + 1), at_once=1 << 20)


def test_a_frame_of_4_gigabytes_is_refused_and_nothing_is_allocated() -> None:
    decoder = new_decoder()

    with pytest.raises(WireFormatError, match="a frame of 4294967295 bytes is announced"):
        receive(decoder, announced(2**32 - 1), at_once=1 << 20)
    assert decoder.capacity == FIRST


def test_the_buffer_grows_with_what_arrives_to_the_frame_and_a_bounded_read_ahead() -> None:
    decoder = new_decoder()
    frame = announced(FRAME_BYTES_MAX) + bytes(FRAME_BYTES_MAX - 6)

    capacities: list[int] = []
    for position in range(0, len(frame) - 1, 1000):
        part = frame[position : min(position + 1000, len(frame) - 1)]
        assert receive(decoder, part, at_once=1000) == []
        assert decoder.capacity <= max(INITIAL, 4 * decoder.buffered_bytes)
        capacities.append(decoder.capacity)

    largest = PREFIX_SIZE + FRAME_BYTES_MAX + READ_AHEAD
    assert sorted(set(capacities)) == [FIRST, INITIAL, 4 * INITIAL, 16 * INITIAL, largest]
    assert capacities == sorted(capacities)


def test_a_damaged_length_does_not_grow_the_buffer() -> None:
    decoder = new_decoder()
    data = bytearray(announced(1000))
    data[2] ^= 1  # 66,536 bytes

    with pytest.raises(WireFormatError, match="does not match its CRC-32C"):
        receive(decoder, data, at_once=1)
    assert decoder.capacity == INITIAL


def test_a_silent_peer_or_one_frame_takes_a_small_buffer_and_the_next_one_a_full_one() -> None:
    decoder = new_decoder()
    decoder.get_buffer()
    assert decoder.capacity == FIRST
    receive(decoder, encoded(SMALL), at_once=100)
    assert decoder.capacity == FIRST

    receive(decoder, encoded(SMALL), at_once=100)

    assert decoder.capacity == INITIAL


def test_many_small_frames_never_grow_the_buffer() -> None:
    decoder = new_decoder()

    frames = receive(decoder, encoded(WITH_ATTACHMENT) * 5000, at_once=100 * KiB)

    assert len(frames) == 5000
    assert decoder.capacity == INITIAL


def test_there_is_always_space_to_receive_into() -> None:
    decoder = new_decoder()
    data = memoryview(STREAM)
    while data:
        space = decoder.get_buffer()
        assert len(space) > 0
        count = min(len(space), len(data))
        space[:count] = data[:count]
        data = data[count:]
        decoder.bytes_received(count)
        while decoder.next_frame() is not None:
            pass

    assert decoder.buffered_bytes == 0


def test_shrink_releases_an_empty_buffer() -> None:
    decoder = new_decoder()
    receive(decoder, encoded(LARGE), at_once=1 << 20)
    grown = decoder.capacity

    decoder.shrink()

    assert grown > INITIAL
    assert decoder.capacity == FIRST
    assert receive(decoder, STREAM, at_once=1 << 20) == SAMPLES * 2


def test_shrink_keeps_buffered_bytes() -> None:
    decoder = new_decoder()
    data = encoded(LARGE)
    begun = 2 * INITIAL
    assert begun < len(data)
    receive(decoder, data + data[:begun], at_once=1 << 20)
    grown = decoder.capacity

    decoder.shrink()

    assert decoder.capacity == decoder.buffered_bytes == begun < grown
    assert receive(decoder, data[begun:], at_once=1 << 20) == [LARGE]


@pytest.mark.parametrize("count", [0, -1, INITIAL + 1])
def test_more_or_less_than_was_received_is_a_programming_error(count: int) -> None:
    decoder = new_decoder()
    decoder.get_buffer()

    with pytest.raises(AssertionError):
        decoder.bytes_received(count)


def test_receiving_on_without_taking_whole_frames_is_a_programming_error() -> None:
    decoder = new_decoder()
    data = encoded(SMALL) * 1000
    receive(decoder, encoded(SMALL), at_once=100)
    space = decoder.get_buffer()
    space[:] = data[: len(space)]
    decoder.bytes_received(len(space))

    with pytest.raises(AssertionError, match="whole frames must be taken"):
        decoder.get_buffer()
