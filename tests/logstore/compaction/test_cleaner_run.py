"""A compacted log reads as before, except for superseded records (I21, I27 to I34)."""

import errno
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.logstore.keyed_logs import (
    append,
    begin,
    commit,
    compact,
    keyed_log,
    newest_of,
    rows_of,
)
from tests.logstore.logs import (
    CHECKPOINT,
    DIRECTORY,
    NOW_MS,
    Opened,
    batch_bounds,
    disk_of,
    image_of,
    name_of,
    new_log,
    reopen,
)
from tests.logstore.replica_pair import flip, repair_all
from tidelog.logstore.compaction.segment_rewrite import RewriteFailedError
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE
from tidelog.wire.batch.record_batch import parse_header


def test_compaction_keeps_the_newest_record_of_each_key_and_records_without_a_key() -> None:
    opened = keyed_log()
    before = rows_of(opened.log)
    segments_before = opened.log.segment_count

    cleaning = compact(opened)

    assert cleaning is not None
    left = newest_of(before, cleaning.end_offset)
    assert len(left) < len(before)
    assert rows_of(opened.log) == left
    assert opened.log.segment_count < segments_before
    again = opened.kill()
    assert rows_of(again.log) == left
    assert not again.report.damage
    assert not again.report.notes
    assert again.log.cleaner.clean_offset == cleaning.end_offset
    assert compact(again) is None


@pytest.mark.invariant("I21")
def test_a_running_read_finishes_with_the_old_file() -> None:
    opened = keyed_log()
    part = opened.log.read(0, max_bytes=1 << 20, high_watermark=opened.log.log_end_offset)
    assert part is not None
    data = part.read()

    compact(opened)

    assert part.load().read() == data


def test_a_swap_leaves_no_file_behind() -> None:
    opened = keyed_log()

    compact(opened)

    names = set(opened.disk.list_directory(DIRECTORY))
    bases = opened.segment_bases()
    indexes = {name_of(base, ".index") for base in bases[:-1]}
    assert len(bases) == opened.log.segment_count
    assert names == {name_of(base) for base in bases} | indexes | {"checkpoint"}


def test_a_compacted_log_without_a_checkpoint_is_scanned_and_is_the_same() -> None:
    opened = keyed_log()
    compact(opened)
    rows = rows_of(opened.log)
    producers = {state.producer_id: state for state in opened.log.producers.snapshot()}
    opened.disk.remove(CHECKPOINT)

    again = opened.kill()

    assert rows_of(again.log) == rows
    assert not again.report.damage
    assert again.log.leader_epochs.entries == opened.log.leader_epochs.entries
    assert again.log.cleaner.clean_offset == 0
    found = {state.producer_id: state for state in again.log.producers.snapshot()}
    assert {at: state.window for at, state in found.items()} == {
        at: state.window for at, state in producers.items()
    }


def truncate(opened: Opened) -> None:
    opened.log.truncate(30)


def delete_records(opened: Opened) -> None:
    opened.log.delete_records(5, high_watermark=opened.log.high_watermark)


def retain(opened: Opened) -> None:
    opened.log.config = replace(opened.log.config, retention_bytes=5000)
    removal = opened.log.apply_retention(high_watermark=opened.log.high_watermark, now_ms=NOW_MS)
    assert len(removal)
    removal.run()


def repair(opened: Opened) -> None:
    opened.log.note_damage(corrupt(20, 22))
    repair_all(opened.log, keyed_log().log)


def note_damage(opened: Opened) -> None:
    opened.log.note_damage(corrupt(20, 22))


def close(opened: Opened) -> None:
    opened.log.close()


@pytest.mark.invariant("I33")
@pytest.mark.parametrize("change", [truncate, delete_records, retain, repair, note_damage, close])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_other_changes_of_a_log_abort_its_cleaning(
    change: Callable[[Opened], None], *, is_prepared: bool
) -> None:
    opened, other = keyed_log(), keyed_log()
    cleaning = begin(opened)
    while cleaning.ready is None:
        cleaning.run(1)
    swap = cleaning.begin_swap() if is_prepared else None
    if swap is not None:
        swap.prepare()

    change(opened)
    change(other)

    assert not cleaning.is_current
    if swap is None:
        assert cleaning.begin_swap() is None
    else:
        assert not cleaning.commit(swap)
    cleaning.abandon()
    opened.flush()
    other.flush()
    again, expected = opened.kill(), other.kill()
    assert again.segment_bases() == expected.segment_bases()
    assert again.log.damage == expected.log.damage
    if change is not note_damage:
        assert rows_of(again.log) == rows_of(expected.log)
    names = again.disk.list_directory(DIRECTORY)
    assert not [name for name in names if "tmp" in name]


@pytest.mark.invariant("I33")
def test_a_repair_resets_the_clean_offset() -> None:
    """Records from another replica may be superseded here, and not there."""
    opened = keyed_log()
    compact(opened)
    source, hurt = reopen(opened.disk.kill()), reopen(opened.disk.kill())
    assert hurt.log.cleaner.clean_offset > 0
    rows = rows_of(hurt.log)
    flip([0])(image := image_of(hurt.disk))
    hurt = reopen(disk_of(image))
    first = parse_header(image[name_of(0)], SEGMENT_HEADER_SIZE)
    assert first is not None
    hurt.log.note_damage(corrupt(0, first.next_offset))

    repair_all(hurt.log, source.log)

    assert hurt.log.cleaner.clean_offset == 0
    again = hurt.kill()
    assert again.log.cleaner.clean_offset == 0
    assert rows_of(again.log) == rows


def test_damage_ends_a_cleaning() -> None:
    opened = keyed_log()
    before = opened.segment_bases()
    base = before[2]
    position = batch_bounds(opened.disk.visible_bytes(opened.path(base)))[1]
    opened.disk.flip_bit(opened.path(base), position + 100, 1)
    cleaning = begin(opened)

    with pytest.raises(RewriteFailedError):
        cleaning.run(1 << 20)

    cleaning.abandon()
    assert cleaning.gap is not None
    opened.log.note_damage(corrupt(cleaning.gap.offset, cleaning.gap.end_offset))
    compact(opened)
    assert opened.segment_bases()[-len(before[2:]) :] == before[2:]


def test_a_cleaning_on_a_full_disk_leaves_the_log_unchanged() -> None:
    opened = keyed_log()
    rows, names = rows_of(opened.log), opened.disk.list_directory(DIRECTORY)
    cleaning = begin(opened)
    opened.disk.fail("write_at", error_number=errno.ENOSPC)

    with pytest.raises(OSError, match="No space"):
        cleaning.run(1 << 20)

    cleaning.abandon()
    assert opened.disk.list_directory(DIRECTORY) == names
    assert rows_of(opened.log) == rows
    compact(opened)
    assert rows_of(opened.log) != rows


steps = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.sampled_from([None, b"a", b"b", b"c"]), st.none() | st.binary(max_size=200)
            ),
            min_size=1,
            max_size=4,
        ),
        st.sampled_from(["roll", "compact", "kill", "scan"]),
    ),
    max_size=25,
)


@pytest.mark.invariant("I27")
@settings(max_examples=25, deadline=None)
@given(steps)
def test_compact_then_read_is_read_then_keep_the_newest(
    story: list[list[tuple[bytes | None, bytes | None]] | str],
) -> None:
    """I27, with real files and starts in between."""
    opened, model = new_log(), dict[int, tuple[bytes | None, bytes | None]]()
    for step in story:
        if isinstance(step, list):
            model.update(enumerate(step, opened.log.log_end_offset))
            append(opened, *step)
        elif step == "compact":
            cleaning = compact(opened)
            model = model if cleaning is None else newest_of(model, cleaning.end_offset)
        else:
            commit(opened)
        if step == "scan":
            opened.disk.remove(CHECKPOINT)
        if step in ("kill", "scan"):
            opened = opened.kill()
            opened.log.high_watermark = opened.log.log_end_offset
        assert rows_of(opened.log) == model
        assert not opened.report.damage


def test_delete_retention_of_a_tombstone_survives_a_restart() -> None:
    opened = keyed_log(count=13 * 3, keys=13)
    day_ms = 24 * 3600 * 1000
    compact(opened)
    assert any(value is None for _, value in rows_of(opened.log).values())
    again = opened.kill()
    append(again, (b"another", b"value"), leader_epoch=9)
    commit(again)

    compact(again, now_ms=NOW_MS + 2 + day_ms)

    assert not any(value is None for _, value in rows_of(again.log).values())


def test_an_aborted_cleaning_swaps_nothing() -> None:
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


def test_a_cleaning_aborted_after_prepare_does_not_commit() -> None:
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


def test_an_aborted_cleaning_does_not_move_the_clean_offset() -> None:
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
    assert cleaner.clean_offset == 7, "the clean part stays clean without a repair"


def test_only_segments_below_the_last_checkpoint_are_cleanable() -> None:
    opened = keyed_log()
    sealed_before = len(opened.log.cleaner.sealed(0))
    append(opened, (b"a", b"b"), leader_epoch=9)
    opened.log.roll_if_old(now_ms=NOW_MS, force=True)

    assert len(opened.log.cleaner.sealed(0)) == sealed_before
    commit(opened)
    assert len(opened.log.cleaner.sealed(0)) == sealed_before + 1


def test_cleaning_times_count_only_below_the_clean_offset() -> None:
    opened = keyed_log()
    cleaning = compact(opened)
    assert cleaning is not None

    def cleaned(clean_offset: int) -> int:
        found = opened.log.cleaner.sealed(clean_offset)
        return sum(each.cleaned_at_ms is not None for each, _ in found)

    assert cleaned(cleaning.end_offset) > 0
    assert cleaned(0) == 0
