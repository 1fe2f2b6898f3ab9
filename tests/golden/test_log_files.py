"""Tests of the golden log files, and of the format pages about them."""

import re
import struct

import pytest

from tests.golden.disk_calls import FILE, disk_calls
from tests.golden.dump import Fields
from tests.golden.log_files import (
    CHECKPOINT_CONTENT,
    CHECKPOINT_FIELDS,
    CONFIG,
    DIRECTORY,
    INDEX_FIELDS,
    NOW_MS,
    OWNER,
    RECORDS,
    SEALED_AT_MS,
    SEGMENT_FOOTER_FIELDS,
    SEGMENT_HEADER_FIELDS,
    log_files,
)
from tests.golden.regenerate import FOLDER
from tests.golden.test_format_pages import code_blocks, page, table_rows
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.idle_replicas import IdleReplica
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file
from tidelog.logstore.producer_state import AppendedBatch, ProducerState
from tidelog.logstore.recovery.recovery import open_log
from tidelog.logstore.segments.file_cache import FileCache
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment_format import (
    SegmentFooter,
    parse_segment_footer,
    parse_segment_header,
)
from tidelog.wire.batch.batch_columns import decode_columns
from tidelog.wire.batch.record_batch import parse_header

WRITTEN_NOW = log_files()
PAGES = ["segment", "index", "checkpoint"]


def golden(name: str) -> bytes:
    return (FOLDER / f"{name}_v1.bin").read_bytes()


def disk_with(**files: bytes) -> FaultyDisk:
    """Return a disk with these files in the log's directory, underscores for dots."""
    disk = FaultyDisk()
    disk.make_directory(DIRECTORY)
    for name, data in files.items():
        path = f"{DIRECTORY}/{name.strip('_').replace('_', '.')}"
        disk.open(path, create=True).write_at(0, [data])
    return disk


@pytest.mark.parametrize("name", WRITTEN_NOW)
def test_encoders_reproduce_the_golden_bytes(name: str) -> None:
    assert WRITTEN_NOW[name] == (FOLDER / name).read_bytes(), (
        "a format has changed: see how to change it in docs/formats, and tests/golden/regenerate.py"
    )


def test_the_segment_is_read_as_it_was_written() -> None:
    data = golden("segment")

    assert parse_segment_header(data, "a segment") == OWNER
    assert parse_segment_footer(data[-64:]) == SegmentFooter(
        1002, len(data) - 64, 1_700_000_005_000, SEALED_AT_MS
    )


@pytest.mark.parametrize("lost_bytes", [0, 64])
def test_a_log_is_opened_from_the_segment_alone(lost_bytes: int) -> None:
    data = golden("segment")
    disk = disk_with(_00000000000000001000_log=data[: len(data) - lost_bytes])

    log, report = open_log(DIRECTORY, OWNER, FileCache(disk), config=CONFIG, now_ms=NOW_MS)

    assert (log.log_start_offset, log.log_end_offset) == (1000, 1002)
    assert (report.damage, report.notes, report.truncated_bytes) == ([], [], 0)
    part = log.read(1001, max_bytes=1000, high_watermark=1002)
    assert part is not None
    batch = part.read()
    header = parse_header(batch)
    assert header is not None
    assert (header.base_offset, header.leader_epoch, header.durable_position) == (1001, 7, 165)
    columns = decode_columns(header, batch, uncompressed_length_max=100)
    assert columns.values == [RECORDS[1][0]]


def test_the_index_is_read_as_it_was_written() -> None:
    index = OffsetIndex.from_bytes(golden("index"), base_offset=1000, interval_bytes=100)

    assert index is not None
    assert (index.floor(1000), index.floor(1001)) == ((1000, 64), (1001, 165))
    assert index.before_time(1_700_000_000_001) == (1001, 165)


def test_the_checkpoint_is_read_as_it_was_written() -> None:
    disk = disk_with(checkpoint=golden("checkpoint"))
    index = OffsetIndex(base_offset=1002, interval_bytes=100)
    index.add(1002, 64, max_timestamp_before=0)
    window = tuple(AppendedBatch(100 + number, 101 + number, 1000 + number) for number in range(3))

    assert read_small_file(disk, f"{DIRECTORY}/checkpoint", LogCheckpoint) == LogCheckpoint(
        log_start_offset=1000,
        recovery_offset=1003,
        recovery_base_offset=1002,
        recovery_position=165,
        max_timestamp_ms=1_700_000_003_000,
        first_append_ms=NOW_MS,
        index=index.to_bytes(),
        leader_epochs=[(7, 1000)],
        producers=[ProducerState(42, 3, NOW_MS, window)],
        damage=[],
        high_watermark=1000,
        has_deletion_markers=True,
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_worked_example_is_the_golden_file(name: str) -> None:
    dump = (FOLDER / f"{name}_v1.txt").read_text(encoding="utf-8")

    assert dump in code_blocks(page(f"{name}.md"))


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("segment", SEGMENT_HEADER_FIELDS),
        ("segment", SEGMENT_FOOTER_FIELDS),
        ("index", INDEX_FIELDS),
        ("checkpoint", CHECKPOINT_FIELDS),
    ],
)
def test_the_tables_are_the_layout(name: str, fields: Fields) -> None:
    rows = [[row[0], row[1], row[3]] for row in table_rows(page(f"{name}.md")) if len(row) == 5]
    layout = [
        [str(offset), str(struct.calcsize("<" + letters)), field.strip()]
        for field, (offset, letters) in fields.items()
    ]

    assert any(rows[start : start + len(layout)] == layout for start in range(len(rows)))


def test_every_field_of_a_small_file_is_explained_in_its_order() -> None:
    explained = re.findall(r"^\| \d+ \| `(\w+)` \|", page("checkpoint.md"), re.MULTILINE)

    of_checkpoint = LogCheckpoint.__struct_fields__
    assert tuple(explained) == (*of_checkpoint, *IdleReplica.__struct_fields__)
    assert of_checkpoint == CHECKPOINT_CONTENT


def test_the_disk_calls_for_durability_are_unchanged() -> None:
    assert disk_calls() == FILE.read_text(encoding="utf-8"), (
        "run python -m tests.golden.disk_calls and look at the difference: is every sync still"
        " where it has to be?"
    )
