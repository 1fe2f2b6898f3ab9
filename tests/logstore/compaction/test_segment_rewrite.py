"""Rewrites of segments into a new file, and swaps of the file."""

import pytest

from tests.logstore.keyed_logs import (
    append,
    begin,
    commit,
    compact,
    keyed_log,
    rows_in,
    rows_of,
    swap_ready,
)
from tests.logstore.logs import DIRECTORY, Opened, name_of, new_log
from tests.simulation.machine.faulty_disk import FaultyFile
from tidelog.logstore.compaction.cleaner_run import CleanerRun
from tidelog.logstore.compaction.segment_rewrite import RewriteFailedError, SegmentRewrite
from tidelog.logstore.segments.segment_format import SEGMENT_HEADER_SIZE


def rewritten(opened: Opened) -> SegmentRewrite:
    """Return the first ready rewrite of a run."""
    cleaning = begin(opened)
    while cleaning.ready is None:
        cleaning.run(1)
    return cleaning.ready


def test_a_rewrite_does_not_touch_the_log() -> None:
    opened = keyed_log()
    before = {path: opened.disk.visible_bytes(path) for path in opened.disk.paths()}

    rewrite = rewritten(opened)

    after = {path: opened.disk.visible_bytes(path) for path in opened.disk.paths()}
    assert after.keys() - before.keys() == {rewrite.temporary}
    assert {path: after[path] for path in before} == before


def test_a_finished_rewrite_is_durable_and_complete() -> None:
    opened = keyed_log()
    rows = rows_of(opened.log)

    rewrite = rewritten(opened)

    content = opened.disk.durable_bytes(rewrite.temporary)
    end = rewrite.footer.end_position
    assert content[end:] == rewrite.footer.to_bytes()
    found, end_offset = rows_in(content[SEGMENT_HEADER_SIZE:end], rewrite.segments[0].base_offset)
    assert end_offset == rewrite.segments[-1].end_offset == rewrite.footer.end_offset
    assert found.items() < rows.items()


def test_an_unchanged_rewrite_is_not_swapped() -> None:
    opened = new_log()
    for number in range(8):
        append(opened, (b"%d" % number, b"." * 1900))
    commit(opened)
    compact(opened)
    before = {path: opened.disk.visible_bytes(path) for path in opened.disk.paths()}
    bases = opened.segment_bases()
    append(opened, (b"another", b"value"))
    commit(opened)

    cleaning = begin(opened)
    swapped: set[int] = set()
    while not cleaning.is_done:
        cleaning.run(1)
        if cleaning.ready is not None:
            swapped.add(cleaning.ready.segments[0].base_offset)
            swap_ready(cleaning)

    assert len(bases) > 3
    assert swapped == {bases[-1]}, "the first cleaning sets the footer's cleaning time"
    for base in bases[:-1]:
        assert opened.disk.visible_bytes(opened.path(base)) == before[opened.path(base)]


def test_a_rewrite_detects_wrong_bytes_by_reading_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = keyed_log()
    cleaning = begin(opened)
    temporary = f"{opened.path(0)}.cleaned.tmp"

    def spoil(_: FaultyFile) -> None:
        opened.disk.flip_bit(temporary, 200, 3)

    monkeypatch.setattr(FaultyFile, "drop_cache", spoil)

    with pytest.raises(RewriteFailedError, match="other bytes"):
        cleaning.run(1 << 20)

    cleaning.abandon()
    assert not opened.disk.exists(temporary)


def test_an_abandoned_rewrite_leaves_no_file() -> None:
    opened = keyed_log()
    names = opened.disk.list_directory(DIRECTORY)

    rewritten(opened).abandon()

    assert opened.disk.list_directory(DIRECTORY) == names


def ready(opened: Opened) -> CleanerRun:
    """Start a run, and continue until the first file is ready to swap."""
    cleaning = begin(opened)
    while cleaning.ready is None:
        cleaning.run(1)
    return cleaning


def test_readers_see_the_new_file_after_the_commit_of_the_swap() -> None:
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


def test_a_cancelled_swap_leaves_only_the_old_files() -> None:
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
    assert names - left <= {name_of(0, ".index")}, "an index is rebuilt on demand"


def test_a_failed_rename_keeps_the_old_files() -> None:
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


def test_one_file_replaces_several() -> None:
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
