"""Indexes made anew from batches."""

import errno

import pytest

from tests.logstore.logs import SMALL, new_log
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.segments.offset_index import SegmentIndex, index_of_batches, write_index
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, parse_segment_footer


def test_it_is_the_index_that_the_log_has_written() -> None:
    opened = new_log()
    opened.append_many(60)
    path = opened.path()
    footer = parse_segment_footer(opened.disk.visible_bytes(path)[-SEGMENT_FOOTER_SIZE:])
    assert footer is not None

    index = index_of_batches(
        opened.disk.open(path), base_offset=0, end_position=footer.end_position, config=SMALL
    )

    assert index.to_bytes() == opened.disk.visible_bytes(path.replace(".log", ".index"))


@pytest.mark.parametrize("operation", ["write_at", "sync", "rename"])
def test_when_the_disk_is_full_the_old_index_stays(operation: str) -> None:
    disk = FaultyDisk()
    disk.make_directory("log")
    old, new = (SegmentIndex(base_offset=base, interval_bytes=1) for base in (0, 9))
    write_index(disk, "log/x.index", old)
    disk.fail(operation, error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space left"):
        write_index(disk, "log/x.index", new)

    assert disk.visible_bytes("log/x.index") == old.to_bytes()
    assert disk.list_directory("log") == ["x.index"]
