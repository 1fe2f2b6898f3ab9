"""One segment beside its footer, its index and a checkpoint."""

from msgspec.structs import replace

from tests.broker.inspection.stored_logs import stored_log, verdicts
from tests.logstore.logs import CHECKPOINT
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file, write_small_file
from tidelog.logstore.segments.offset_index import SegmentIndex
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, parse_segment_footer


def test_an_index_that_says_what_is_not_so_is_noticed() -> None:
    opened = stored_log()
    path = opened.path().replace(".log", ".index")
    name = path.rpartition("/")[2]
    lies = {
        "no batch begins at position 65": (0, 65, 0),
        "an entry says that offset 1 is at position 64, where offset 0 is": (1, 64, 0),
    }

    for complaint, (offset, position, before_ms) in lies.items():
        lie = SegmentIndex(base_offset=0, interval_bytes=1)
        lie.add(offset, position, max_timestamp_before=before_ms)
        opened.disk.put_back(path, lie.to_bytes())
        (problem,) = verdicts(opened.disk)[name].problems
        assert problem.startswith(complaint)


def test_a_footer_that_is_younger_than_its_records_say_is_noticed() -> None:
    opened = stored_log()
    data = opened.disk.visible_bytes(opened.path())
    footer = parse_segment_footer(data[-SEGMENT_FOOTER_SIZE:])
    assert footer is not None
    lie = replace(footer, max_timestamp_ms=footer.max_timestamp_ms - 1)
    opened.disk.put_back(opened.path(), data[:-SEGMENT_FOOTER_SIZE] + lie.to_bytes())

    (problem,) = verdicts(opened.disk)[f"{0:020}.log"].problems

    assert problem.startswith("its footer says that no record is of later than ")


def test_a_recovery_point_inside_of_a_batch_is_noticed() -> None:
    opened = stored_log()
    known = read_small_file(opened.disk, CHECKPOINT, LogCheckpoint)
    assert known is not None
    lie = replace(known, recovery_position=known.recovery_position - 1)
    write_small_file(opened.disk, CHECKPOINT, lie)

    (problem,) = verdicts(opened.disk)["checkpoint"].problems

    assert "is not the end of a batch of" in problem
