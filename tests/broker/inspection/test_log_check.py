"""Tests of the findings for each file of one log."""

from random import Random

from msgspec.structs import replace

from tests.broker.inspection.stored_logs import all_findings, bad_files, stored_log
from tests.logstore.keyed_logs import compact, keyed_log
from tests.logstore.logs import CHECKPOINT, DIRECTORY, Opened, numbered
from tidelog.logstore.checkpoint import LogCheckpoint, read_small_file, write_small_file


def test_a_torn_tail_is_told_from_damage() -> None:
    opened = stored_log()
    base = opened.segment_bases()[-1]
    path = opened.path(base)
    data = opened.disk.visible_bytes(path)

    opened.disk.put_back(path, data + b"\x00" * 30)
    torn = all_findings(opened.disk)[path.rpartition("/")[2]].problems
    opened.disk.put_back(path, data[:-1])
    damaged = all_findings(opened.disk)[path.rpartition("/")[2]].problems

    assert torn[0].startswith(f"torn tail at position {len(data)}, offset 10: zeros")
    assert damaged[0].startswith("damage at position ")


def test_a_segment_of_another_partition_is_reported() -> None:
    opened = stored_log()
    other = stored_log()
    bases = opened.segment_bases()
    stranger = other.disk.visible_bytes(other.path(bases[1])).replace(b"flights", b"sthgilf")
    opened.disk.put_back(opened.path(bases[1]), stranger)

    assert f"{bases[1]:020}.log" in bad_files(opened.disk)


def test_files_that_a_deletion_left_are_noted_without_a_problem() -> None:
    opened = stored_log()
    opened.disk.open(f"{DIRECTORY}/{opened.segment_bases()[1]:020}.deleted", create=True)

    found = all_findings(opened.disk)

    assert bad_files(opened.disk) == []
    assert "the next start removes it" in found[f"{0:020}.log"].note


def test_a_segment_after_a_power_cut_has_only_a_torn_tail() -> None:
    for seed in range(20):
        opened = stored_log()
        for number in range(10, 12):
            opened.append(numbered(number), leader_epoch=1)
        found = all_findings(opened.disk.power_cut(Random(seed)))

        problems = [problem for check in found.values() for problem in check.problems]
        assert all(problem.startswith("torn ") for problem in problems), problems


def test_files_that_a_segment_swap_left_are_no_problem() -> None:
    opened = keyed_log(30)
    files = {name: opened.disk.visible_bytes(f"{DIRECTORY}/{name}") for name in names(opened)}
    compact(opened)
    gone = files.keys() - set(names(opened))
    for name in gone:
        opened.disk.open(f"{DIRECTORY}/{name}", create=True).write_at(0, [files[name]])

    found = all_findings(opened.disk)

    assert not any(check.problems for check in found.values())
    assert {name for name, check in found.items() if "replaces it" in check.note} == gone
    again = opened.kill()
    assert gone.isdisjoint(names(again))
    assert not again.report.notes


def test_a_clean_offset_behind_the_recovery_point_is_reported() -> None:
    opened = stored_log()
    known = read_small_file(opened.disk, CHECKPOINT, LogCheckpoint)
    assert known is not None
    lie = replace(known, clean_offset=known.recovery_offset + 1)
    write_small_file(opened.disk, CHECKPOINT, lie)

    (problem,) = all_findings(opened.disk)["checkpoint"].problems

    assert problem == "its clean offset is behind its recovery point"


def names(opened: Opened) -> list[str]:
    return opened.disk.list_directory(DIRECTORY)
