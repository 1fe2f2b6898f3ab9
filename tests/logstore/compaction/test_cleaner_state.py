"""Which cleaning of a log may still count, and what may be cleaned of its files."""

from tests.logstore.compacting import append, begin, commit, compact, keyed_log, rows_of
from tests.logstore.logs import NOW_MS


def test_a_cleaning_that_was_ended_swaps_nothing() -> None:
    opened = keyed_log()
    rows = rows_of(opened.log)
    cleaning = begin(opened)
    while cleaning.ready is None:
        cleaning.run(1)

    opened.log.cleaner.abort()

    assert not cleaning.is_current
    assert cleaning.begin_swap() is None
    cleaning.abandon()
    assert rows_of(opened.log) == rows


def test_a_cleaning_that_is_ended_between_preparing_and_deciding_decides_nothing() -> None:
    opened = keyed_log()
    rows = rows_of(opened.log)
    cleaning = begin(opened)
    while cleaning.ready is None:
        cleaning.run(1)
    swap = cleaning.begin_swap()
    assert swap is not None
    swap.prepare()

    opened.log.cleaner.abort()

    assert not cleaning.commit(swap)
    cleaning.abandon()
    assert rows_of(opened.log) == rows


def test_a_cleaning_that_was_ended_does_not_say_how_far_the_log_is_clean() -> None:
    opened = keyed_log()
    cleaner = opened.log.cleaner
    generation = cleaner.generation
    cleaner.abort()

    cleaner.complete(10, generation)
    assert cleaner.clean_offset == 0
    cleaner.complete(10, cleaner.generation)
    assert cleaner.clean_offset == 10
    cleaner.abort(clean_offset_max=7)
    assert cleaner.clean_offset == 7
    cleaner.abort()
    assert cleaner.clean_offset == 7, "what is clean stays so when nothing comes back"


def test_only_what_lies_below_the_last_checkpoint_may_be_cleaned() -> None:
    opened = keyed_log()
    sealed_before = len(opened.log.cleaner.sealed(0))
    append(opened, (b"a", b"b"), leader_epoch=9)
    opened.log.roll_if_old(now_ms=NOW_MS, force=True)

    assert len(opened.log.cleaner.sealed(0)) == sealed_before
    commit(opened)
    assert len(opened.log.cleaner.sealed(0)) == sealed_before + 1


def test_times_of_first_cleanings_count_below_the_place_up_to_which_all_is_clean() -> None:
    opened = keyed_log()
    cleaning = compact(opened)
    assert cleaning is not None

    def cleaned(clean_offset: int) -> int:
        found = opened.log.cleaner.sealed(clean_offset)
        return sum(each.cleaned_at_ms is not None for each, _ in found)

    assert cleaned(cleaning.end_offset) > 0
    assert cleaned(0) == 0
