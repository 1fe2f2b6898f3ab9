"""Generator of the golden files: `python -m tests.golden.regenerate`; check `git diff` afterwards.

The golden files are the bytes of every released format version, with a dump of each as text. A
changed file breaks every client and every disk with such bytes: commit only changes that you
understand, and no change of an old version. A new version of a format gets new files beside the
old ones, whose names end with its number; a new version of a message gets a section in the file of
its API.

Dumps take the bytes apart with `struct` and `msgpack`, not with the code under test.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgpack

from tests.golden.dump import dump_fields, lines, text
from tests.golden.frames import bytes_of, read_dumps, write_dumps
from tests.golden.log_files import log_files
from tests.golden.sealed import dump_sealed, sealed_batch
from tests.golden.small_files import small_files
from tests.wire.batches import HEADER_FIELDS, HEADER_SIZE, sample_batch, sparse_batch, stored_batch
from tests.wire.samples import CORRELATION_ID, EXCHANGES, OUT_OF_RANGE, VERSION
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import FORMAT_COLUMNAR, Columns
from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.protocol import api

FOLDER = Path(__file__).parent

LONG_COLUMNS = Columns(
    2,
    timestamp_deltas=[0, 100_000],
    keys=[b"k", b""],
    values=[bytes(range(256)) + b"!", None],
    offset_deltas=[0, 1],
)
COMPRESSED_COLUMNS = Columns(
    20, keys=[b"user-%d" % number for number in range(20)], values=[b"a value"] * 20
)
PREFIX_FIELDS = {
    "length": (0, "I"),
    "correlation_id": (4, "I"),
    "kind": (8, "B"),
    "throttled_by": (9, "B"),
    "api_key": (10, "H"),
    "api_version": (12, "H"),
    "throttle_ms": (14, "H"),
    "header_length": (16, "I"),
    "crc": (20, "I"),
}
PREFIX_SIZE = 24
THROTTLE = (int(QuotaRate.REQUESTS), 750)
"""Notice in the golden frame of a throttled reply: the rate, and milliseconds."""
COLUMN_NAMES = ("timestamp_deltas", "keys", "values", "headers", "offset_deltas")


def golden_files() -> dict[str, bytes]:
    """Return the names of the golden files of `wire` with their present encoding."""
    batch = bytes(stored_batch())
    sparse = bytes(sparse_batch())
    sealed = bytes(sealed_batch())
    columnar = bytes(stored_batch(format_version=FORMAT_COLUMNAR))
    columnar_sparse = bytes(sparse_batch(format_version=FORMAT_COLUMNAR))
    long = bytes(long_batch())
    return {
        "record_batch_v1.bin": batch,
        "record_batch_v1.txt": text(dump_batch(batch)),
        "record_batch_v1_sparse.bin": sparse,
        "record_batch_v1_sparse.txt": text(dump_batch(sparse)),
        "record_batch_v1_sealed.bin": sealed,
        "record_batch_v1_sealed.txt": text(dump_sealed(sealed)),
        "record_batch_v1_lz4.bin": bytes(sample_batch(Codec.LZ4, columns=COMPRESSED_COLUMNS)),
        "record_batch_v1_zstd.bin": bytes(sample_batch(Codec.ZSTD, columns=COMPRESSED_COLUMNS)),
        "record_batch_v2.bin": columnar,
        "record_batch_v2.txt": text(dump_batch(columnar)),
        "record_batch_v2_sparse.bin": columnar_sparse,
        "record_batch_v2_sparse.txt": text(dump_batch(columnar_sparse)),
        "record_batch_v2_long.bin": long,
        "record_batch_v2_long.txt": text(dump_batch(long)),
        "record_batch_v2_lz4.bin": bytes(compressed_batch(Codec.LZ4)),
        "record_batch_v2_zstd.bin": bytes(compressed_batch(Codec.ZSTD)),
    }


def long_batch() -> bytearray:
    """Return a batch of format version 2 with lengths of two bytes and times of four."""
    return sample_batch(columns=LONG_COLUMNS, format_version=FORMAT_COLUMNAR)


def compressed_batch(codec: Codec) -> bytearray:
    """Return a compressed batch of format version 2."""
    return sample_batch(codec, columns=COMPRESSED_COLUMNS, format_version=FORMAT_COLUMNAR)


def depends_on_the_compressor(name: str) -> bool:
    """Return whether other releases of a library may write other bytes; all must be readable."""
    return "_lz4" in name or "_zstd" in name


def attachment_of(name: str) -> bytes:
    """Return the attachment of the golden frame of this name."""
    if name.startswith("produce_request"):
        return bytes(sample_batch())
    if name.startswith("fetch_reply"):
        return bytes(stored_batch())
    return b""


def dump_batch(batch: bytes) -> Iterator[str]:
    """Yield the lines that explain an uncompressed batch, byte by byte."""
    yield from dump_fields(batch, HEADER_FIELDS)
    columns = cast("list[object]", msgpack.unpackb(batch[HEADER_SIZE:]))
    version, _, count = struct.unpack_from("<HHI", batch, HEADER_FIELDS["format_version"][0])
    yield from lines(HEADER_SIZE, batch[HEADER_SIZE : HEADER_SIZE + 1], "array of 5 columns")
    offset = HEADER_SIZE + 1
    for name, column in zip(COLUMN_NAMES, columns, strict=True):
        packed = msgpack.packb(column)
        assert batch[offset : offset + len(packed)] == packed
        if version == FORMAT_COLUMNAR and column is not None and name != "headers":
            yield from _dump_columnar(offset, name, column, count=count)
        else:
            yield from lines(offset, packed, f"{name} = {column}")
        offset += len(packed)
    assert offset == len(batch)


def _dump_columnar(offset: int, name: str, column: object, *, count: int) -> Iterator[str]:
    """Yield the lines that explain a column of format version 2, which is not nil."""
    if isinstance(column, bytes):
        numbers = _numbers(column, "bhiq", count)
        yield from lines(offset, msgpack.packb(column), f"{name} = {numbers}")
        return
    lengths, blob, nulls = cast("tuple[bytes, bytes, bytes | None]", column)
    yield from lines(offset, b"\x93", f"{name}: array of 3")
    offset += 1
    for part, value, meaning in (
        ("lengths", lengths, _numbers(lengths, "BHI", count)),
        ("blob", blob, repr(blob[:40])),
        ("nulls", nulls, None if nulls is None else list(nulls)),
    ):
        packed = msgpack.packb(value)
        yield from lines(offset, packed, f"  {part} = {meaning}")
        offset += len(packed)


def _numbers(packed: bytes, letters: str, count: int) -> list[int]:
    """Return numbers of the type among these whose size fits their count."""
    (letter,) = (each for each in letters if struct.calcsize("<" + each) * count == len(packed))
    return list(struct.unpack(f"<{count}{letter}", packed))


def dump_frame(frame: bytes) -> Iterator[str]:
    """Yield the lines that explain a frame."""
    yield from dump_fields(frame, PREFIX_FIELDS)
    (header_length,) = struct.unpack_from("<I", frame, 16)
    header_end = PREFIX_SIZE + header_length
    header = frame[PREFIX_SIZE:header_end]
    yield from lines(PREFIX_SIZE, header, f"header = {msgpack.unpackb(header)}")
    if header_end < len(frame):
        yield from lines(header_end, frame[header_end:], "attachment: one record batch")


def frames() -> Iterator[tuple[str, bytes]]:
    """Yield the name of each golden frame of a newest version with its present encoding."""
    for exchange in EXCHANGES:
        for part, encode, message in (
            ("request", exchange.api.encode_request, exchange.request),
            ("reply", exchange.api.encode_reply, exchange.reply),
        ):
            version = exchange.api.max_version
            name = f"{exchange.name}_{part}_v{version}"
            attachment = attachment_of(name)
            frame = encode(
                message,
                version=version,
                correlation_id=CORRELATION_ID,
                attachment_length=len(attachment),
            )
            yield name, frame + attachment
    yield (
        "error_v1",
        api.encode_error(
            OUT_OF_RANGE,
            api_key=api.FETCH.key,
            api_version=VERSION,
            correlation_id=CORRELATION_ID,
        ),
    )
    throttled = next(each for each in EXCHANGES if each.api is api.PRODUCE)
    yield (
        "throttled_v1",
        throttled.api.encode_reply(
            throttled.reply,
            version=throttled.api.max_version,
            correlation_id=CORRELATION_ID,
            throttle=THROTTLE,
        ),
    )


def main() -> None:
    """Write every golden file."""
    kept = {name: bytes_of(dump) for name, dump in read_dumps().items()}
    all_frames = {**kept, **dict(frames())}
    write_dumps({name: text(dump_frame(frame)).decode() for name, frame in all_frames.items()})
    for name, content in {**golden_files(), **log_files(), **small_files()}.items():
        (FOLDER / name).write_bytes(content)


if __name__ == "__main__":
    main()
