"""Whether files are what was written, and go together."""

from tests.broker.inspection.stored_logs import bad_files, paths_of, stored_log, verdicts
from tests.logstore.logs import CHECKPOINT, DIRECTORY


def test_a_log_that_is_as_it_should_be_is_good() -> None:
    opened = stored_log()

    found = verdicts(opened.disk)

    assert set(found) == set(opened.disk.list_directory(DIRECTORY))
    assert bad_files(opened.disk) == []


def test_every_flipped_byte_of_every_file_is_noticed() -> None:
    opened = stored_log()

    for path in paths_of(opened.disk):
        data = opened.disk.visible_bytes(path)
        for position in range(0, len(data), 7):
            opened.disk.flip_bit(path, position, position % 8)
            assert bad_files(opened.disk) != [], f"{path}, byte {position}"
            opened.disk.flip_bit(path, position, position % 8)
    assert bad_files(opened.disk) == []


def test_every_lost_end_of_every_file_is_noticed() -> None:
    opened = stored_log()

    for path in paths_of(opened.disk):
        data = opened.disk.visible_bytes(path)
        for size in range(0, len(data), 11):
            opened.disk.put_back(path, data[:size])
            assert bad_files(opened.disk) != [], f"{path}, cut to {size}"
        opened.disk.put_back(path, data)


def test_every_lost_file_but_an_index_is_noticed() -> None:
    opened = stored_log()

    for path in paths_of(opened.disk):
        data = opened.disk.visible_bytes(path)
        opened.disk.lose_file(path)
        assert (bad_files(opened.disk) != []) == (not path.endswith(".index")), path
        opened.disk.open(path, create=True).write_at(0, [data])


def test_one_file_can_be_looked_at_alone() -> None:
    opened = stored_log()

    (segment,) = verdicts(opened.disk, opened.path()).values()
    (checkpoint,) = verdicts(opened.disk, CHECKPOINT).values()

    assert segment.is_ok
    assert checkpoint.is_ok
