"""Tests of dumps of the files of a log."""

import struct

from crc32c import crc32c

from tests.broker.inspection.stored_logs import (
    BATCH_COUNT,
    bad_files,
    fields_of,
    lines,
    of_type,
    paths_of,
    stored_log,
)
from tests.logstore.logs import CHECKPOINT, DIRECTORY, numbered
from tests.wire.batches import sparse_batch
from tidelog.broker.inspection.dump import flag_names
from tidelog.broker.inspection.rows import OffsetFilter
from tidelog.logstore.checkpoint import LogCheckpoint
from tidelog.logstore.segments.segment_format import SegmentFooter, SegmentHeader
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import (
    FORMAT_COLUMNAR,
    KNOWN_FLAGS,
    BatchHeader,
    Columns,
    check_produced,
    encode_batch,
    parse_header,
)


def test_a_dump_has_every_batch_with_all_header_fields() -> None:
    opened = stored_log()

    found = lines(opened.disk)

    batches = of_type(found, "batch")
    assert [line["base_offset"] for line in batches] == list(range(BATCH_COUNT))
    names = {"file", "type", "position", "codec", "flag_names"}
    assert set(batches[0]) == names | fields_of(BatchHeader)
    assert (batches[0]["codec"], batches[0]["flag_names"]) == ("none", [])
    assert of_type(found, "bad") == []
    assert set(of_type(found, "segment")[0]) >= fields_of(SegmentHeader)
    assert set(of_type(found, "footer")[0]) >= fields_of(SegmentFooter)


def test_a_dump_has_records_on_request() -> None:
    opened = stored_log()

    found = of_type(lines(opened.disk, with_records=True), "record")

    assert [line["offset"] for line in found] == list(range(BATCH_COUNT))
    assert found[3]["timestamp_ms"] == 1_700_000_003_000
    assert (found[3]["key"], found[3]["headers"]) == (None, [])
    assert found[3]["value"] == numbered(3)


def test_a_dump_and_a_verification_read_both_formats_of_batches() -> None:
    opened = stored_log()
    columns = Columns(
        3, keys=[b"k", None, b""], values=[b"v", b"", None], timestamp_deltas=[0, 5, 1]
    )
    batch = memoryview(
        encode_batch(
            columns, first_timestamp_ms=7, codec=Codec.ZSTD, format_version=FORMAT_COLUMNAR
        )
    )
    opened.log.append(batch, check_produced(batch), leader_epoch=1, now_ms=7)
    opened.flush(checkpoint=True)

    found = lines(opened.disk, with_records=True)

    formats = [line["format_version"] for line in of_type(found, "batch")]
    assert formats == [1] * BATCH_COUNT + [2]
    records = of_type(found, "record")[BATCH_COUNT:]
    assert [line["offset"] for line in records] == [10, 11, 12]
    assert [line["timestamp_ms"] for line in records] == [7, 12, 8]
    assert [line["key"] for line in records] == columns.keys
    assert [line["value"] for line in records] == columns.values
    assert bad_files(opened.disk) == []


def test_a_dump_is_limited_to_the_requested_offsets() -> None:
    opened = stored_log()

    found = lines(opened.disk, wanted=OffsetFilter(3, 6), with_records=True)

    assert [line["base_offset"] for line in of_type(found, "batch")] == [3, 4, 5]
    assert [line["offset"] for line in of_type(found, "record")] == [3, 4, 5]
    assert all(line["offset"] in (3, 4, 5) for line in of_type(found, "index_entry"))


def test_a_dump_shows_the_fields_of_an_index_and_a_checkpoint() -> None:
    opened = stored_log()

    found = lines(opened.disk)

    entries = of_type(found, "index_entry")
    assert {"offset": 0, "position": 64, "max_timestamp_before_ms": 0}.items() <= entries[0].items()
    (checkpoint,) = of_type(found, "checkpoint")
    assert set(checkpoint) >= fields_of(LogCheckpoint)
    assert checkpoint["leader_epochs"] == [[0, 0], [1, 5]]
    assert checkpoint["recovery_offset"] == BATCH_COUNT


def test_a_dump_of_a_torn_file_ends_with_the_torn_range() -> None:
    opened = stored_log()
    base = opened.segment_bases()[-1]
    size = len(opened.disk.visible_bytes(opened.path(base)))
    opened.disk.cut_file(opened.path(base), size - 5)

    found = lines(opened.disk, opened.path(base))

    assert [line["base_offset"] for line in of_type(found, "batch")] == [8]
    (bad,) = of_type(found, "bad")
    assert (bad["offset"], bad["end_offset"]) == (9, None)
    assert "is cut off after" in str(bad["reason"])


def test_a_dump_shows_valid_batches_behind_damage() -> None:
    opened = stored_log()
    second = int(str(of_type(lines(opened.disk), "batch")[1]["position"]))
    opened.disk.flip_bit(opened.path(), second + 100, 3)

    found = lines(opened.disk, opened.path())

    assert [line["base_offset"] for line in of_type(found, "batch")] == [0, 2, 3]
    (bad,) = of_type(found, "bad")
    assert (bad["position"], bad["offset"], bad["end_offset"]) == (second, 1, 2)
    assert bad["reason"] == "the payload of the batch at offset 1 does not match its CRC-32C"


def test_a_dump_of_every_truncation_of_every_file_shows_the_rest() -> None:
    opened = stored_log()
    images = {path: opened.disk.visible_bytes(path) for path in paths_of(opened.disk)}

    for path, data in images.items():
        whole = len(lines(opened.disk, path))
        for size in range(0, len(data), 7):
            opened.disk.put_back(path, data[:size])
            assert len(lines(opened.disk, path)) <= whole + 1
        opened.disk.put_back(path, data)


def test_a_dump_shows_all_other_kinds_of_files() -> None:
    opened = stored_log()
    for name in ("00000000000000000004.deleted", "checkpoint.tmp", "notes.txt", "x.log.stale"):
        opened.disk.open(f"{DIRECTORY}/{name}", create=True)

    found = lines(opened.disk)

    shown = {line["type"] for line in found}
    assert shown >= {"deletion_marker", "staging_file", "unknown"}
    assert of_type(found, "deletion_marker")[0]["log_start_offset"] == 4


def test_a_dump_reports_newer_format_versions() -> None:
    opened = stored_log()
    disk = opened.disk
    for path, crc_at, version_at in ((opened.path(), 60, 8), (CHECKPOINT, 12, 4)):
        disk.put_back(path, _newer(disk.visible_bytes(path), version_at, crc_at))
    index = opened.path().replace(".log", ".index")
    disk.put_back(index, _newer(disk.visible_bytes(index), 4, 20))

    for path in (opened.path(), CHECKPOINT, index):
        (bad,) = lines(disk, path)
        assert str(bad["reason"]).startswith(
            f"{disk.root}/{path} has format version 2, this tidelog reads 1; use the version that"
        )


def _newer(data: bytes, version_at: int, crc_at: int) -> bytes:
    """Return a file of the next format version whose checksum is right."""
    changed = data[:version_at] + struct.pack("<H", 2) + data[version_at + 2 :]
    body = b"" if crc_at == 60 else changed[crc_at + 4 :]
    crc = struct.pack("<I", crc32c(body, crc32c(changed[:crc_at])))
    return changed[:crc_at] + crc + changed[crc_at + 4 :]


def test_a_dump_names_the_flags_of_a_batch() -> None:
    header = parse_header(sparse_batch())

    assert header is not None
    assert flag_names(header.flags) == ["sparse"]
    assert flag_names(KNOWN_FLAGS) == [
        "log_append_time",
        "transactional",
        "control",
        "queue_fields",
        "chunks",
        "sparse",
    ]
    assert flag_names(0) == []
