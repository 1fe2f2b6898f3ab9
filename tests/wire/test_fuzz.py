"""Any bytes are decoded or refused with a tidelog error, in bounded memory.

The fuzzed bytes start as valid ones and are then damaged. Their checksums are repaired, so that the
damage gets past them. To fuzz for longer, with new examples in every run:

    TIDELOG_FUZZ_EXAMPLES=100000 python -m pytest --timeout=0 tests/wire/test_fuzz.py
"""

import os
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress

from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.wire.batches import HEADER_SIZE, reseal, sample_batch, with_payload
from tests.wire.brokers import APIS
from tests.wire.memory import at_most_allocated
from tests.wire.samples import EXCHANGES
from tidelog.wire.batch.batch_columns import (
    ColumnDecoder,
    PackedColumns,
    columns_in_steps,
    decode_columns,
)
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    FORMAT_VERSION,
    Columns,
    check_produced,
    parse_header,
)
from tidelog.wire.errors import (
    CorruptBatchError,
    InvalidBatchError,
    RecordTooLargeError,
    WireFormatError,
)
from tidelog.wire.messages.handshake import ApiVersions, HelloRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import ClientConnection, Request, ServerConnection
from tidelog.wire.protocol.frame import PREFIX_SIZE, FrameDecoder

KiB = 1024
FRAME_BYTES_MAX = 64 * KiB
UNCOMPRESSED_LENGTH_MAX = 64 * KiB
WITHOUT_VALUES = ColumnDecoder({"timestamp_deltas", "keys", "headers"})
PYTHON_OBJECTS_PER_BYTE = 32
"""Approximate bytes of the object of an empty map or array, which takes one byte."""

_asked_for = os.environ.get("TIDELOG_FUZZ_EXAMPLES")
fuzz = settings(
    max_examples=int(_asked_for or 250),
    derandomize=_asked_for is None,
    database=None,
)

TELLING_BYTES = (
    b"\x00\x01\x7f\x80\x90\x91\x95\xa1\xc0\xc1\xc4\xc6\xc7\xcf\xd3\xd9\xdb\xdc\xdd\xdf\xff"
)
"""Limits of numbers, and the bytes by which msgpack announces things."""

Edit = Callable[[bytes], bytes]


def _overwrite(at: int, new: bytes) -> Edit:
    def edit(data: bytes) -> bytes:
        start = at % (len(data) + 1)
        return data[:start] + new + data[start + len(new) :]

    return edit


def _insert(at: int, new: bytes) -> Edit:
    return lambda data: data[: at % (len(data) + 1)] + new + data[at % (len(data) + 1) :]


def _delete(at: int, count: int) -> Edit:
    return lambda data: data[: at % (len(data) + 1)] + data[at % (len(data) + 1) + count :]


def _repeat(at: int, count: int, times: int) -> Edit:
    def edit(data: bytes) -> bytes:
        start = at % (len(data) + 1)
        return data[: start + count] + data[start : start + count] * times + data[start + count :]

    return edit


_places = st.integers(0, 400)
_news = st.lists(st.sampled_from(TELLING_BYTES), min_size=1, max_size=8).map(bytes) | st.binary(
    min_size=1, max_size=8
)
edits = st.lists(
    st.builds(_overwrite, _places, _news)
    | st.builds(_insert, _places, _news)
    | st.builds(_delete, _places, st.integers(1, 30))
    | st.builds(_repeat, _places, st.integers(1, 20), st.integers(1, 300)),
    min_size=1,
    max_size=6,
)


def damaged(data: bytes | bytearray, changes: Sequence[Edit]) -> bytes:
    result = bytes(data)
    for change in changes:
        result = change(result)
    return result


def repaired(frame: bytes) -> bytes:
    """Return a frame's bytes with the CRC that its prefix and header ask for."""
    if len(frame) < PREFIX_SIZE:
        return frame
    (header_length,) = struct.unpack_from("<I", frame, 16)
    header = frame[PREFIX_SIZE : PREFIX_SIZE + header_length]
    return frame[:20] + struct.pack("<I", crc32c(header, crc32c(frame[:20]))) + frame[24:]


def message_memory(data: bytes) -> int:
    """Return the limit of allocated bytes for the messages in some frames."""
    return PYTHON_OBJECTS_PER_BYTE * (len(data) + KiB) + 300 * KiB


FRAMES = [
    encode(message, version=1, correlation_id=place, attachment_length=5) + b"bytes"
    for place, exchange in enumerate(EXCHANGES)
    for encode, message in (
        (exchange.api.encode_request, exchange.request),
        (exchange.api.encode_reply, exchange.reply),
    )
]
OFFERED = [ApiVersions(served.key, 1, 1) for served in APIS]
HELLO = api.HELLO.encode_request(HelloRequest("fuzz", "1"), version=1, correlation_id=0)

any_frame = st.sampled_from(FRAMES)
chunk_sizes = st.sampled_from([1, 7, 100, 100 * KiB])


def received(
    decoder: FrameDecoder, data: bytes, at_once: int, *, take: Callable[[], object]
) -> int:
    """Feed the data, call `take` for all results, and return their number."""
    count = 0
    rest = memoryview(data)
    while rest:
        space = decoder.get_buffer()
        length = min(len(space), len(rest), at_once)
        space[:length] = rest[:length]
        rest = rest[length:]
        decoder.bytes_received(length)
        while take() is not None:
            count += 1
    return count


@fuzz
@given(st.lists(any_frame, max_size=3), edits, chunk_sizes, st.booleans())
def test_a_frame_decoder_takes_any_bytes(
    frames: list[bytes], changes: list[Edit], at_once: int, repair: bool
) -> None:
    data = damaged(b"".join(frames), changes)
    decoder = FrameDecoder(max_frame_bytes=FRAME_BYTES_MAX)

    with at_most_allocated(3 * FRAME_BYTES_MAX + 300 * KiB), suppress(WireFormatError):
        received(decoder, repaired(data) if repair else data, at_once, take=decoder.next_frame)

    assert decoder.capacity <= PREFIX_SIZE + FRAME_BYTES_MAX + 128 * KiB


@fuzz
@given(any_frame, edits, chunk_sizes, st.booleans())
def test_a_server_takes_any_bytes(
    frame: bytes, changes: list[Edit], at_once: int, introduced: bool
) -> None:
    data = repaired(damaged(frame, changes))
    server = ServerConnection(APIS, max_frame_bytes=FRAME_BYTES_MAX)
    if introduced:
        data = HELLO + data

    with at_most_allocated(message_memory(data)), suppress(WireFormatError):
        received(server.decoder, data, at_once, take=server.next_request)


@fuzz
@given(st.sampled_from(EXCHANGES), edits, st.booleans())
def test_a_server_answers_any_message_in_a_good_frame(
    exchange: object, changes: list[Edit], attached: bool
) -> None:
    assert isinstance(exchange, type(EXCHANGES[0]))
    whole = exchange.api.encode_request(exchange.request, version=1, correlation_id=1)
    header = damaged(whole[PREFIX_SIZE:], changes)
    prefix = struct.pack(
        "<IIBBHHHI", len(header) + 5 * attached, 1, 1, 0, exchange.api.key, 1, 0, len(header)
    )
    server = ServerConnection(APIS, max_frame_bytes=FRAME_BYTES_MAX)
    data = repaired(prefix + bytes(4) + header + b"bytes" * attached)

    count = received(server.decoder, HELLO + data, 100 * KiB, take=server.next_request)

    assert count == 2, "it is a request or refused, and the connection stays open"


@fuzz
@given(st.integers(0, len(FRAMES) - 1), edits, chunk_sizes)
def test_a_client_takes_any_bytes(place: int, changes: list[Edit], at_once: int) -> None:
    data = repaired(damaged(FRAMES[place], changes))
    client = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)
    client.set_offered(OFFERED)
    for exchange in EXCHANGES:
        client.send_request(exchange.api, exchange.request)

    with at_most_allocated(message_memory(data)), suppress(WireFormatError):
        received(client.decoder, data, at_once, take=client.next_reply)


BATCHES = [
    bytes(sample_batch(codec, columns=columns, format_version=version))
    for codec in (Codec.NONE, Codec.LZ4, Codec.ZSTD)
    for version in (FORMAT_VERSION, FORMAT_COLUMNAR)
    for columns in (
        Columns(3, [0, 5, 9], [b"k", None, b""], [b"v", b"w", None], [(), (("a", b"1"),), ()]),
        Columns(200, values=[b"value of some length"] * 200),
        Columns(50, headers=[(("name", b"value"), ("name", b"other"))] * 50),
        Columns(3, [0, 1 << 40, 5], values=[bytes(300), None, b""], offset_deltas=[0, 1, 2]),
    )
]
UNCOMPRESSED = BATCHES[: len(BATCHES) // 3]
"""Their payload is damaged as such, and not as the input of a decompressor."""


@fuzz
@given(st.sampled_from(BATCHES), edits, st.booleans())
def test_a_produced_batch_of_any_bytes_is_taken_or_refused(
    batch: bytes, changes: list[Edit], repair: bool
) -> None:
    data = bytearray(damaged(batch, changes))
    if repair and len(data) >= HEADER_SIZE:
        data = reseal(data)

    try:
        header = check_produced(memoryview(data))
    except (InvalidBatchError, CorruptBatchError, RecordTooLargeError):
        return

    assert header.size == len(data)
    assert header.record_count == header.last_offset_delta + 1
    assert 0 <= header.first_timestamp_ms <= header.max_timestamp_ms


@fuzz
@given(st.sampled_from(BATCHES), edits, edits)
def test_columns_of_any_bytes_are_understood_or_refused(
    batch: bytes, header_changes: list[Edit], payload_changes: list[Edit]
) -> None:
    head = damaged(batch[:HEADER_SIZE], header_changes)[:HEADER_SIZE]
    data = reseal(
        bytearray(head.ljust(HEADER_SIZE) + damaged(batch[HEADER_SIZE:], payload_changes))
    )
    data[:4] = batch[:4]
    header = parse_header(reseal(data))
    assert header is not None

    with at_most_allocated(PYTHON_OBJECTS_PER_BYTE * UNCOMPRESSED_LENGTH_MAX):
        try:
            columns = decode_columns(header, data, uncompressed_length_max=UNCOMPRESSED_LENGTH_MAX)
        except WireFormatError:
            return

    assert columns.record_count == header.record_count


@fuzz
@given(st.sampled_from(UNCOMPRESSED), edits, st.integers(0, 60))
def test_a_payload_of_any_bytes_is_understood_or_refused(
    batch: bytes, changes: list[Edit], count: int
) -> None:
    payload = damaged(batch[HEADER_SIZE:], changes)
    data = with_payload(bytearray(batch), payload, record_count=count)
    header = parse_header(data)
    assert header is not None

    with at_most_allocated(PYTHON_OBJECTS_PER_BYTE * UNCOMPRESSED_LENGTH_MAX):
        try:
            columns = decode_columns(header, data, uncompressed_length_max=UNCOMPRESSED_LENGTH_MAX)
        except WireFormatError:
            return

    found = [columns.timestamp_deltas, columns.keys, columns.values, columns.headers]
    assert all(len(column) == header.record_count for column in found if column is not None)
    packed = PackedColumns(header, data, uncompressed_length_max=UNCOMPRESSED_LENGTH_MAX)
    for name, column in (("keys", columns.keys), ("values", columns.values)):
        lengths_and_blob = packed.byte_column(name)
        is_columnar = header.format_version == FORMAT_COLUMNAR and column is not None
        assert (lengths_and_blob is not None) == is_columnar
        assert list(packed.column(name) or ()) == list(column or ())


@fuzz
@given(st.sampled_from(UNCOMPRESSED), edits, st.integers(0, 60))
def test_a_payload_of_any_bytes_is_understood_in_steps_or_refused(
    batch: bytes, changes: list[Edit], count: int
) -> None:
    payload = damaged(batch[HEADER_SIZE:], changes)
    header = parse_header(with_payload(bytearray(batch), payload, record_count=count))
    assert header is not None

    with at_most_allocated(PYTHON_OBJECTS_PER_BYTE * UNCOMPRESSED_LENGTH_MAX):
        steps = columns_in_steps(header, memoryview(payload))
        try:
            while True:
                next(steps)
        except WireFormatError:
            return
        except StopIteration as stop:
            found: Columns = stop.value

    assert found == WITHOUT_VALUES.decode_plain(header, payload)


def test_repaired_damage_gets_past_the_checksums() -> None:
    change_the_name = [_overwrite(26, b"F")]
    hello = repaired(damaged(HELLO, change_the_name))
    server = ServerConnection(APIS, max_frame_bytes=FRAME_BYTES_MAX)
    server.decoder.get_buffer()[: len(hello)] = hello
    server.decoder.bytes_received(len(hello))

    request = server.next_request()

    assert isinstance(request, Request)
    assert request.message == HelloRequest("Fuzz", "1")
