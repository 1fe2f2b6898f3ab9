"""One swap of files, from what was prepared to what counts; crashes are in `test_swap_crashes`."""

import pytest

from tests.logstore.compacting import begin, keyed_log, rows_of, swap_ready
from tests.logstore.logs import DIRECTORY, Opened, name_of
from tidelog.logstore.compaction.cleaner_run import CleanerRun


def ready(opened: Opened) -> CleanerRun:
    """Begin a round, and go on until the first file is ready to be swapped."""
    cleaning = begin(opened)
    while cleaning.ready is None:
        cleaning.run(1)
    return cleaning


def test_readers_see_the_new_file_as_soon_as_it_counts_and_not_before() -> None:
    opened = keyed_log()
    before = rows_of(opened.log)
    cleaning = ready(opened)

    swap = cleaning.begin_swap()
    assert swap is not None
    swap.prepare()
    assert rows_of(opened.log) == before
    assert cleaning.commit(swap)
    after = rows_of(opened.log)
    swap.finish()
    cleaning.end_swap(swap)

    cleaning.abandon()
    assert len(after) < len(before)
    assert rows_of(opened.log) == after == rows_of(opened.kill().log)


def test_a_swap_that_is_given_up_leaves_the_old_files_and_nothing_else() -> None:
    opened = keyed_log()
    before, names = rows_of(opened.log), set(opened.disk.list_directory(DIRECTORY))
    cleaning = ready(opened)
    swap = cleaning.begin_swap()
    assert swap is not None
    swap.prepare()

    swap.cancel()
    cleaning.abandon()

    assert rows_of(opened.log) == before
    left = set(opened.disk.list_directory(DIRECTORY))
    assert left <= names
    assert names - left <= {name_of(0, ".index")}, "an index is made anew when it is needed"


def test_a_rename_that_fails_lets_the_old_files_count_on() -> None:
    opened = keyed_log()
    before = rows_of(opened.log)
    cleaning = ready(opened)
    swap = cleaning.begin_swap()
    assert swap is not None
    swap.prepare()
    opened.disk.fail("rename")

    with pytest.raises(OSError, match="Input/output"):
        cleaning.commit(swap)

    cleaning.abandon()
    assert rows_of(opened.log) == before == rows_of(opened.kill().log)


def test_one_file_may_take_the_place_of_several() -> None:
    opened = keyed_log(keys=2)
    count = opened.log.segment_count
    cleaning = ready(opened)
    assert cleaning.ready is not None
    replaced = len(cleaning.ready.segments)
    assert replaced > 1

    swap_ready(cleaning)
    cleaning.abandon()

    assert opened.log.segment_count == count - replaced + 1
    assert len(opened.segment_bases()) == opened.log.segment_count
