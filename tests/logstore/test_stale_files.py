"""Segments that reverted to an earlier state: all checksums are right, but the records are stale.

Offset and leader epoch identify a record. So a batch with another epoch than the log has for its
offset is damage like any other.
"""

import pytest

from tests.logstore.logs import Opened, new_log, numbered, read_all, reopen
from tests.logstore.replica_pair import check_whole, note_all_damage, repair_all
from tests.simulation.machine.disk_damage import durable_state
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE

KEPT, END = 10, 60
SIZES = [KEPT + 1, 25, END, END + 20]
FOR_EVER = 1 << 40


def written(opened: Opened, end: int, *, leader_epoch: int, as_what: bytes) -> None:
    while opened.log.log_end_offset < end:
        offset = opened.log.log_end_offset
        opened.append(numbered(offset) + as_what, leader_epoch=leader_epoch)
    opened.flush(checkpoint=True)


def leader() -> Opened:
    """Return the right log."""
    opened = new_log()
    written(opened, KEPT, leader_epoch=1, as_what=b"common")
    written(opened, END, leader_epoch=3, as_what=b"right")
    return opened


def stale(size: int) -> Opened:
    """Return a log whose segments reverted to their state before another leader's writes.

    They went up to offset `size` then.
    """
    opened = new_log()
    written(opened, KEPT, leader_epoch=1, as_what=b"common")
    written(opened, size, leader_epoch=2, as_what=b"wrong")
    segments = [path for path in opened.disk.paths() if path.endswith(".log")]
    earlier = durable_state(opened.disk, segments)
    opened.log.truncate(KEPT)
    written(opened, END, leader_epoch=3, as_what=b"right")
    disk = opened.disk.kill()
    for path, data in earlier.items():
        if path in disk.paths():
            disk.put_back(path, data)
    return reopen(disk)


@pytest.mark.parametrize("size", SIZES)
def test_stale_records_of_a_replaced_epoch_are_not_served(size: int) -> None:
    opened = stale(size)

    found = read_all(opened.log)

    assert opened.log.log_end_offset == END
    assert not [value for value in found.values() if value.endswith(b"wrong")]
    assert all(found[offset].endswith(b"common") for offset in range(KEPT))


@pytest.mark.parametrize("size", SIZES)
def test_a_scrub_finds_stale_records(size: int) -> None:
    opened = stale(size)
    known = {offset for each in opened.log.damage for offset in range(each.offset, each.end_offset)}

    from_offset = 0
    while (scrub := opened.log.begin_scrub(from_offset=from_offset)) is not None:
        scrub.run(FOR_EVER)
        known |= {offset for gap in scrub.gaps for offset in range(gap.offset, gap.end_offset)}
        from_offset = scrub.base_offset + 1

    good = {offset for offset, value in read_all(opened.log).items() if value.endswith(b"right")}
    assert known == set(range(KEPT, END)) - good


@pytest.mark.parametrize("size", SIZES)
def test_stale_records_are_repaired_from_another_replica(size: int) -> None:
    opened, source = stale(size), leader()

    note_all_damage(opened.log)
    repair_all(opened.log, source.log)

    check_whole(opened, source)


def test_where_an_epoch_begins_is_no_damage() -> None:
    opened = leader()
    again = opened.kill()

    assert len(read_all(again.log, max_bytes=1)) == END
    scrub = again.log.begin_scrub(from_offset=0)
    assert scrub is not None
    scrub.run(FOR_EVER)
    assert not scrub.gaps
    assert opened.disk.durable_bytes(opened.path())[:SEGMENT_HEADER_SIZE]
