"""Tests of the repair of indexes."""

from random import Random

from tests.broker.inspection.stored_logs import (
    BATCH_COUNT,
    CONFIG,
    bad_files,
    paths_of,
    stored_log,
)
from tests.logstore.crashes import ProcessEndedError
from tests.logstore.logs import DIRECTORY, expected, read_all, reopen
from tests.simulation.machine.faulty_disk import FaultyDisk, StaleHandleError
from tidelog.broker.inspection.repair import repair_indexes


def repair(disk: FaultyDisk) -> list[str]:
    return [each.path for each in repair_indexes(disk, paths_of(disk)) if each.is_ok]


def indexes_of(disk: FaultyDisk) -> list[str]:
    return [path for path in paths_of(disk) if path.endswith(".index")]


def test_bad_or_missing_indexes_are_recreated() -> None:
    opened = stored_log()
    first, second = indexes_of(opened.disk)
    opened.disk.flip_bit(first, 30, 1)
    opened.disk.lose_file(second)
    before = {path: opened.disk.visible_bytes(path) for path in paths_of(opened.disk)}

    repair(opened.disk)

    assert bad_files(opened.disk) == []
    assert indexes_of(opened.disk) == [first, second]
    for path, data in before.items():
        if not path.endswith(".index"):
            assert opened.disk.visible_bytes(path) == data
    assert read_all(reopen(opened.disk, CONFIG).log) == expected(0, BATCH_COUNT)


def test_the_active_segment_gets_no_index_file() -> None:
    opened = stored_log()
    active = opened.segment_bases()[-1]

    repair(opened.disk)

    assert f"{active:020}.index" not in opened.disk.list_directory(DIRECTORY)


def test_a_crash_at_any_disk_call_leaves_the_old_index_or_the_new_one() -> None:
    stop = 0
    while _repair_until(stop, seed=stop % 5):
        stop += 1
    assert stop > 5


def _repair_until(stop: int, *, seed: int) -> bool:
    """Cut the power before a call of the disk; return whether that call was reached."""
    opened = stored_log()
    opened.disk.sync_directory(DIRECTORY)
    count = 0

    def end(operation: str, path: str) -> None:
        nonlocal count
        del operation, path
        count += 1
        if count > stop:
            raise ProcessEndedError

    opened.disk.before_call = end
    try:
        repair(opened.disk)
    except (ProcessEndedError, StaleHandleError):
        pass
    else:
        return False
    after = opened.disk.power_cut(Random(seed))
    assert bad_files(after) == []
    assert read_all(reopen(after, CONFIG).log) == expected(0, BATCH_COUNT)
    return True
