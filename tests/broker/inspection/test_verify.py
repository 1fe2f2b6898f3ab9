"""Tests of verification: checksums, and consistency of segments, indexes, footers."""

from msgspec.structs import replace

from tests.broker.inspection.stored_logs import all_findings, bad_files, paths_of, stored_log
from tests.logstore.logs import CHECKPOINT, DIRECTORY
from tidelog.broker.inspection.findings import FileCheck, Problems
from tidelog.broker.inspection.index_check import IndexCheck
from tidelog.broker.inspection.repair import repair_indexes
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file, write_small_file
from tidelog.logstore.segments.offset_index import OffsetIndex
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, parse_segment_footer


def test_an_intact_log_verifies() -> None:
    opened = stored_log()

    found = all_findings(opened.disk)

    assert set(found) == set(opened.disk.list_directory(DIRECTORY))
    assert bad_files(opened.disk) == []


def test_every_flipped_byte_of_every_file_is_reported() -> None:
    opened = stored_log()

    for path in paths_of(opened.disk):
        data = opened.disk.visible_bytes(path)
        for position in range(0, len(data), 7):
            opened.disk.flip_bit(path, position, position % 8)
            assert bad_files(opened.disk) != [], f"{path}, byte {position}"
            opened.disk.flip_bit(path, position, position % 8)
    assert bad_files(opened.disk) == []


def test_every_truncation_of_every_file_is_reported() -> None:
    opened = stored_log()

    for path in paths_of(opened.disk):
        data = opened.disk.visible_bytes(path)
        for size in range(0, len(data), 11):
            opened.disk.put_back(path, data[:size])
            assert bad_files(opened.disk) != [], f"{path}, cut to {size}"
        opened.disk.put_back(path, data)


def test_every_missing_file_is_reported() -> None:
    opened = stored_log()

    for path in paths_of(opened.disk):
        data = opened.disk.visible_bytes(path)
        opened.disk.lose_file(path)
        assert bad_files(opened.disk) != [], path
        opened.disk.open(path, create=True).write_at(0, [data])


def test_a_missing_index_of_a_sealed_segment_is_named() -> None:
    opened = stored_log()
    (index, *_) = (path for path in paths_of(opened.disk) if path.endswith(".index"))
    opened.disk.lose_file(index)

    (problem,) = all_findings(opened.disk)[index.rpartition("/")[2]].problems
    assert problem.startswith("it is missing; the broker recreates it when a read needs it")
    list(repair_indexes(opened.disk, paths_of(opened.disk)))
    assert bad_files(opened.disk) == []


def test_one_file_can_be_verified_alone() -> None:
    opened = stored_log()

    (segment,) = all_findings(opened.disk, opened.path()).values()
    (checkpoint,) = all_findings(opened.disk, CHECKPOINT).values()

    assert segment.is_ok
    assert checkpoint.is_ok


def test_a_file_without_problems_is_ok() -> None:
    assert FileCheck("f", note="a note").is_ok
    assert not FileCheck("f", ("wrong",)).is_ok


def test_only_the_first_of_many_problems_are_kept_with_a_count_of_the_rest() -> None:
    problems = Problems()
    for number in range(25):
        problems.add(str(number))

    assert len(problems) == 25
    assert problems.all()[:2] == ("0", "1")
    assert problems.all()[-1] == "and 5 more"
    assert len(problems.all()) == 21


BATCHES = ((10, 64, 0), (12, 164, 500), (15, 264, 900))
"""Offset, position, and the largest timestamp before."""


def problem_of(*entries: tuple[int, int, int]) -> str | None:
    index = OffsetIndex(base_offset=10, interval_bytes=1)
    for offset, position, before_ms in entries:
        index.add(offset, position, max_timestamp_before=before_ms)
    check = IndexCheck(index)
    for offset, position, before_ms in BATCHES:
        check.batch(offset, position, max_timestamp_before=before_ms)
    return check.end()


def test_a_sparse_index_is_right() -> None:
    assert problem_of() is None
    assert problem_of(*BATCHES) is None
    assert problem_of(BATCHES[0], BATCHES[2]) is None


def test_an_index_entry_may_have_a_larger_timestamp_but_not_a_smaller_one() -> None:
    assert problem_of(BATCHES[0], (12, 164, 501)) is None
    assert problem_of(BATCHES[0], (12, 164, 499)) == (
        "an entry gives 499 as the largest timestamp before offset 12, and a record has 500"
    )


def test_an_index_entry_between_or_behind_batches_is_wrong() -> None:
    assert problem_of((11, 100, 0)) == "no batch begins at position 100, as an entry says"
    assert problem_of((16, 300, 0)) == "no batch begins at position 300, as an entry says"


def test_an_index_entry_with_another_offset_is_wrong() -> None:
    assert problem_of((11, 64, 0)) == (
        "an entry says that offset 11 is at position 64, where offset 10 is"
    )


def test_a_wrong_index_is_reported() -> None:
    opened = stored_log()
    path = opened.path().replace(".log", ".index")
    name = path.rpartition("/")[2]
    lies = {
        "no batch begins at position 65": (0, 65, 0),
        "an entry says that offset 1 is at position 64, where offset 0 is": (1, 64, 0),
    }

    for complaint, (offset, position, before_ms) in lies.items():
        lie = OffsetIndex(base_offset=0, interval_bytes=1)
        lie.add(offset, position, max_timestamp_before=before_ms)
        opened.disk.put_back(path, lie.to_bytes())
        (problem,) = all_findings(opened.disk)[name].problems
        assert problem.startswith(complaint)


def test_a_footer_with_a_smaller_timestamp_than_its_records_is_reported() -> None:
    opened = stored_log()
    data = opened.disk.visible_bytes(opened.path())
    footer = parse_segment_footer(data[-SEGMENT_FOOTER_SIZE:])
    assert footer is not None
    lie = replace(footer, max_timestamp_ms=footer.max_timestamp_ms - 1)
    opened.disk.put_back(opened.path(), data[:-SEGMENT_FOOTER_SIZE] + lie.to_bytes())

    (problem,) = all_findings(opened.disk)[f"{0:020}.log"].problems

    assert problem.startswith("its footer gives ")


def test_a_recovery_point_inside_of_a_batch_is_reported() -> None:
    opened = stored_log()
    known = read_small_file(opened.disk, CHECKPOINT, LogCheckpoint)
    assert known is not None
    lie = replace(known, recovery_position=known.recovery_position - 1)
    write_small_file(opened.disk, CHECKPOINT, lie)

    (problem,) = all_findings(opened.disk)["checkpoint"].problems

    assert "is not the end of a batch of" in problem
