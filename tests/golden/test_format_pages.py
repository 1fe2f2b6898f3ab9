"""The format pages print the bytes of the golden files and the tested layout."""

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from tests.golden.frames import bytes_of, read_dumps
from tests.golden.regenerate import FOLDER, PREFIX_FIELDS
from tests.wire.batches import HEADER_FIELDS, HEADER_SIZE
from tidelog.wire.batch import record_batch
from tidelog.wire.batch.compression import Codec
from tidelog.wire.protocol.frame import FrameKind

FORMATS = FOLDER.parent.parent / "docs" / "formats"
TYPES = {"H": "u16", "I": "u32", "Q": "u64", "q": "i64"}


def page(name: str) -> str:
    return (FORMATS / name).read_text(encoding="utf-8")


def code_blocks(text: str, language: str = "text") -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def table_rows(text: str) -> list[list[str]]:
    return [
        [cell.strip().strip("`") for cell in line.strip("|").split("|")]
        for line in text.splitlines()
        if line.startswith("|")
    ]


@pytest.mark.parametrize(
    ("name", "dump"),
    [
        ("record_batch.md", "record_batch_v1.txt"),
        ("record_batch.md", "record_batch_v1_sparse.txt"),
        ("record_batch.md", "record_batch_v2.txt"),
        ("record_batch.md", "record_batch_v2_sparse.txt"),
        ("sealed_batch.md", "record_batch_v1_sealed.txt"),
    ],
)
def test_the_worked_example_is_the_golden_file(name: str, dump: str) -> None:
    assert (FOLDER / dump).read_text(encoding="utf-8") in code_blocks(page(name))


@pytest.mark.parametrize("name", ["hello_request_v1", "produce_request_v1"])
def test_the_worked_example_is_the_golden_frame(name: str) -> None:
    assert read_dumps()[name] in code_blocks(page("frame.md"))


@pytest.mark.parametrize("dump", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_a_dump_shows_every_byte_of_its_golden_file(dump: Path) -> None:
    assert bytes_of(dump.read_text(encoding="utf-8")) == dump.with_suffix(".bin").read_bytes()


def test_the_table_of_the_batch_header_is_the_layout() -> None:
    rows = [row[:4] for row in table_rows(page("record_batch.md")) if len(row) == 6]

    assert rows[2:-1] == [
        [str(offset), str(struct.calcsize(letter)), TYPES[letter], name]
        for name, (offset, letter) in HEADER_FIELDS.items()
    ]
    assert rows[-1][0] == str(HEADER_SIZE)


def test_every_header_field_is_explained() -> None:
    text = page("record_batch.md")

    explained = {
        name
        for line in re.findall(r"^- .*$", text, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", line)
    }
    assert set(HEADER_FIELDS) <= explained


def test_the_table_of_the_prefix_is_the_layout() -> None:
    rows = [row[:3] for row in table_rows(page("frame.md"))]

    assert rows[2:] == [
        [str(offset), str(struct.calcsize(letter)), name.strip()]
        for name, (offset, letter) in PREFIX_FIELDS.items()
    ]


def test_numbers_on_the_pages_are_those_of_the_code() -> None:
    batch, frame = page("record_batch.md"), page("frame.md")

    assert f"`sync_marker` is {record_batch.SYNC_MARKER:#010x}" in batch
    versions = f"{record_batch.FORMAT_VERSION} or {record_batch.FORMAT_COLUMNAR}"
    assert {record_batch.FORMAT_VERSION, record_batch.FORMAT_COLUMNAR} == record_batch.KNOWN_FORMATS
    assert f"`format_version` is {versions}:" in batch
    assert f"fewer than {record_batch.COLUMNAR_COUNT_MIN} records" in batch
    assert f"version 2 has at most {record_batch.PRODUCED_COUNT_MAX:,} records" in batch
    assert f"most {record_batch.PRODUCED_COUNT_MAX:,} (2^16)" in batch
    assert f"up to {record_batch.RECORD_COUNT_MAX:,} (2^24)" in batch
    assert record_batch.TIMESTAMP_END_MS == 2**62
    assert record_batch.SEQUENCE_END == 2**63
    assert (
        f"{Codec.NONE} none, {Codec.LZ4} LZ4, {Codec.ZSTD} Zstandard; {Codec.KAFKA_V2} is" in batch
    )
    assert f"{FrameKind.REQUEST} request, {FrameKind.REPLY} reply, {FrameKind.ERROR} error" in frame
    assert (
        record_batch.FLAG_LOG_APPEND_TIME,
        record_batch.FLAG_TRANSACTIONAL,
        record_batch.FLAG_CONTROL,
    ) == (1 << 4, 1 << 5, 1 << 6)


@pytest.mark.parametrize("version", [1, 2])
def test_the_reader_on_the_page_reads_the_golden_file(version: int) -> None:
    (code,) = code_blocks(page("record_batch.md"), "python")
    names: dict[str, object] = {}
    exec(compile(code, "record_batch.md", "exec"), names)
    read_batch = cast("Callable[[bytes], list[tuple[object, ...]]]", names["read_batch"])

    records = read_batch((FOLDER / f"record_batch_v{version}.bin").read_bytes())

    assert records == [
        (1000, 1_700_000_000_000, b"user-1", b"hello", []),
        (1001, 1_700_000_000_005, None, b"world", [["trace", b"\x01\x02"]]),
        (1002, 1_700_000_001_000, b"user-2", None, []),
    ]
