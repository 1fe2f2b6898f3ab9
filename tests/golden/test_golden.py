"""Tests of the golden files: released formats are encoded and decoded unchanged."""

import re

import pytest

from tests.golden import group_records, metadata_records, queue_journal
from tests.golden.dump import text
from tests.golden.frames import bytes_of, read_dumps
from tests.golden.regenerate import (
    COMPRESSED_COLUMNS,
    FOLDER,
    LONG_COLUMNS,
    THROTTLE,
    attachment_of,
    depends_on_the_compressor,
    dump_frame,
    frames,
    golden_files,
)
from tests.wire.batches import SAMPLE_COLUMNS
from tests.wire.samples import CORRELATION_ID, EXCHANGES, IN_OLDER_VERSIONS, OUT_OF_RANGE
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, check_produced, has_valid_payload, parse_header
from tidelog.wire.messages.produce import ProduceReply
from tidelog.wire.protocol import api
from tidelog.wire.protocol.frame import Frame, FrameDecoder, FrameKind

WRITTEN_NOW = golden_files()
DUMPS = read_dumps()
FRAMES = {name: bytes_of(dump) for name, dump in DUMPS.items()}


def read_frame(data: bytes) -> Frame:
    decoder = FrameDecoder(max_frame_bytes=1 << 20)
    decoder.get_buffer()[: len(data)] = data
    decoder.bytes_received(len(data))
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.buffered_bytes == 0
    return frame


@pytest.mark.parametrize(
    "name", [name for name in WRITTEN_NOW if not depends_on_the_compressor(name)]
)
def test_encoders_reproduce_the_golden_bytes(name: str) -> None:
    golden = (FOLDER / name).read_bytes()

    assert WRITTEN_NOW[name] == golden, (
        "a format has changed: see how to change it in docs/formats, and tests/golden/regenerate.py"
    )


@pytest.mark.parametrize("version", [1, 2])
def test_a_golden_batch_decodes(version: int) -> None:
    batch = (FOLDER / f"record_batch_v{version}.bin").read_bytes()

    header = parse_header(batch)

    assert header is not None
    assert has_valid_payload(header, batch)
    assert header.format_version == version
    assert (header.base_offset, header.leader_epoch, header.durable_position) == (1000, 7, 4096)
    assert decode_columns(header, batch, uncompressed_length_max=1000) == SAMPLE_COLUMNS


@pytest.mark.parametrize("version", [1, 2])
def test_a_golden_sparse_batch_decodes(version: int) -> None:
    batch = (FOLDER / f"record_batch_v{version}_sparse.bin").read_bytes()

    header = parse_header(batch)

    assert header is not None
    assert has_valid_payload(header, batch)
    assert header.format_version == version
    assert (header.base_offset, header.next_offset, header.record_count) == (1000, 1003, 2)
    assert decode_columns(header, batch, uncompressed_length_max=1000) == Columns(
        2,
        timestamp_deltas=[5, 1000],
        keys=[None, b"user-2"],
        values=[b"world", None],
        headers=[(("trace", b"\x01\x02"),), ()],
        offset_deltas=[1, 2],
    )


def test_a_golden_batch_with_long_values_decodes() -> None:
    batch = (FOLDER / "record_batch_v2_long.bin").read_bytes()

    header = check_produced(memoryview(batch))

    assert header.format_version == 2
    assert decode_columns(header, batch, uncompressed_length_max=1000) == LONG_COLUMNS


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_a_golden_compressed_batch_decodes(codec: Codec, version: int) -> None:
    batch = (FOLDER / f"record_batch_v{version}_{codec.name.lower()}.bin").read_bytes()

    header = check_produced(memoryview(batch))

    assert (header.codec, header.format_version) == (codec, version)
    assert decode_columns(header, batch, uncompressed_length_max=1000) == COMPRESSED_COLUMNS


@pytest.mark.parametrize(("name", "written_now"), [*frames()])
def test_frame_encoding_reproduces_the_golden_frames(name: str, written_now: bytes) -> None:
    assert FRAMES[name] == written_now, (
        "a message has changed: see how to change it in wire/protocol/api.py, and"
        " tests/golden/regenerate.py"
    )
    assert DUMPS[name] == text(dump_frame(written_now)).decode()


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_is_read_as_it_was_written(name: str) -> None:
    frame = read_frame(FRAMES[name])
    found = re.fullmatch(r"(?P<api>\w+)_(?P<part>request|reply)_v(?P<version>\d+)", name)

    assert frame.correlation_id == CORRELATION_ID
    if name == "throttled_v1":
        assert (frame.throttled_by, frame.throttle_ms) == THROTTLE
        assert isinstance(api.PRODUCE.decode_reply(frame.header), ProduceReply)
        return
    assert (frame.throttled_by, frame.throttle_ms) == (0, 0)
    if found is None:
        assert name == "error_v1"
        assert frame.kind is FrameKind.ERROR
        assert api.decode_error(frame.header) == OUT_OF_RANGE
        return
    (exchange,) = [exchange for exchange in EXCHANGES if exchange.name == found["api"]]
    assert (frame.api_key, frame.api_version) == (exchange.api.key, int(found["version"]))
    assert bytes(frame.attachment) == attachment_of(name)
    if found["part"] == "request":
        assert frame.kind is FrameKind.REQUEST
        assert exchange.api.decode_request(frame.header) == IN_OLDER_VERSIONS.get(
            name, exchange.request
        )
    else:
        assert frame.kind is FrameKind.REPLY
        assert exchange.api.decode_reply(frame.header) == IN_OLDER_VERSIONS.get(
            name, exchange.reply
        )


def test_every_golden_file_without_a_dump_has_a_reader() -> None:
    """Each `.hex` is the `FILE` of a module here, whose tests read it line by line."""
    files = {module.FILE.name for module in (group_records, metadata_records, queue_journal)}

    assert {path.name for path in FOLDER.glob("*.hex")} == files


def test_every_golden_file_is_known() -> None:
    kept = {
        path.relative_to(FOLDER).as_posix()
        for pattern in ("*.bin", "*.txt")
        for path in FOLDER.glob(pattern)
    }
    of_wire = {name for name in kept if name.startswith("record_batch")}

    assert set(WRITTEN_NOW) <= of_wire
    assert all(
        re.search(r"_v\d+(_lz4|_zstd|_sparse|_sealed|_long)?\.(bin|txt)$", name) for name in of_wire
    )


def test_every_message_has_its_golden_frame_in_every_version() -> None:
    wanted = {
        f"{exchange.name}_{part}_v{version}"
        for exchange in EXCHANGES
        for part in ("request", "reply")
        for version in range(exchange.api.min_version, exchange.api.max_version + 1)
    }

    assert set(FRAMES) == wanted | {"error_v1", "throttled_v1"}
