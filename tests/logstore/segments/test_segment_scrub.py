"""A scrub finds every flipped bit of durable bytes, and repairs headers, footers and indexes."""

from collections.abc import Iterator

import pytest

from tests.logstore.logs import (
    CHECKPOINT,
    DIRECTORY,
    Opened,
    batch_bounds,
    expected,
    image_of,
    name_of,
    new_log,
    read_all,
)
from tidelog.logstore.config import KiB, LogConfig
from tidelog.logstore.segments.segment_format import SEGMENT_FOOTER_SIZE, SEGMENT_HEADER_SIZE
from tidelog.logstore.segments.segment_scrub import SegmentScrub, is_checkpoint_spoiled

TINY = LogConfig(segment_bytes=700, index_interval_bytes=128, max_message_bytes=600)
SEALED, ACTIVE = 0, 5
FOR_EVER = 1 << 40


def tiny_log() -> Opened:
    """Return a log with a sealed segment, and two batches in the active one."""
    opened = new_log(TINY)
    opened.append_many(ACTIVE + 2, flush_every=2)
    opened.flush(checkpoint=True)
    assert opened.segment_bases() == [SEALED, ACTIVE]
    return opened


def scrubs(opened: Opened) -> Iterator[SegmentScrub]:
    """Scrub a whole log."""
    from_offset = 0
    while (scrub := opened.log.begin_scrub(from_offset=from_offset)) is not None:
        while not scrub.is_done:
            scrub.run(FOR_EVER)
        yield scrub
        from_offset = scrub.base_offset + 1


def found(opened: Opened) -> list[tuple[int, int] | str]:
    """Return gaps and corrupt parts."""
    everything: list[tuple[int, int] | str] = []
    for scrub in scrubs(opened):
        everything += [(gap.offset, gap.end_offset) for gap in scrub.gaps]
        everything += scrub.spoiled
    if is_checkpoint_spoiled(opened.disk, DIRECTORY):
        everything.append("checkpoint")
    return everything


def flipped(opened: Opened, name: str) -> Iterator[int]:
    """Flip one bit of each byte of a file, one after the other, and yield its position."""
    path = f"{DIRECTORY}/{name}"
    for position in range(len(image_of(opened.disk)[name])):
        opened.disk.flip_bit(path, position, position % 8)
        yield position
        opened.disk.flip_bit(path, position, position % 8)


def test_a_scrub_of_a_good_log_finds_nothing() -> None:
    opened = tiny_log()

    assert found(opened) == []
    assert [scrub.base_offset for scrub in scrubs(opened)] == [SEALED, ACTIVE]


@pytest.mark.invariant("I6")
@pytest.mark.parametrize("base", [SEALED, ACTIVE])
def test_a_scrub_finds_every_flipped_bit_of_a_segment(base: int) -> None:
    opened = tiny_log()
    bounds = batch_bounds(image_of(opened.disk)[name_of(base)])

    for position in flipped(opened, name_of(base)):
        if position < SEGMENT_HEADER_SIZE:
            assert found(opened) == ["header"]
        elif position >= bounds[-1]:
            assert found(opened) == ["footer"]
        else:
            number = base + sum(bound <= position for bound in bounds) - 1
            assert found(opened) == [(number, number + 1)]


@pytest.mark.parametrize(
    ("name", "what"), [(name_of(SEALED, ".index"), "index"), ("checkpoint", "checkpoint")]
)
def test_a_scrub_finds_every_flipped_bit_of_other_files(name: str, what: str) -> None:
    opened = tiny_log()

    for _ in flipped(opened, name):
        assert found(opened) == [what]


def test_a_scrub_finds_a_missing_checkpoint() -> None:
    opened = new_log()
    opened.append_many(3)
    opened.flush(checkpoint=True)
    assert found(opened) == []

    opened.disk.lose_file(f"{DIRECTORY}/checkpoint")

    assert found(opened) == ["checkpoint"]


def test_a_scrub_finds_a_lost_end() -> None:
    opened = tiny_log()
    opened.disk.cut_file(opened.path(SEALED), SEGMENT_HEADER_SIZE + 10)

    assert found(opened) == [(0, ACTIVE), "footer"]


@pytest.mark.invariant("I13")
@pytest.mark.parametrize("what", ["header", "footer", "index"])
def test_a_scrub_repairs_headers_footers_and_indexes(what: str) -> None:
    opened = tiny_log()
    before = image_of(opened.disk)
    size = len(before[name_of(SEALED)])
    path, position = {
        "header": (opened.path(SEALED), 20),
        "footer": (opened.path(SEALED), size - SEGMENT_FOOTER_SIZE + 10),
        "index": (opened.path(SEALED).replace(".log", ".index"), 30),
    }[what]
    opened.disk.flip_bit(path, position, 3)

    for scrub in scrubs(opened):
        if scrub.repair():
            scrub.sync()

    assert found(opened) == []
    assert read_all(opened.log) == expected(0, ACTIVE + 2)
    for again in (opened.kill(), opened.cut_power(1)):
        assert again.report.notes == []
        assert again.report.scanned_bytes == 0
        assert read_all(again.log) == expected(0, ACTIVE + 2)
        after = image_of(again.disk)
        assert after[name_of(SEALED)] == before[name_of(SEALED)]
        assert found(again) == [], "it does not come back"


@pytest.mark.invariant("I13")
def test_a_power_failure_corrupts_no_part_that_a_scrub_checks() -> None:
    for seed in range(60):
        opened = new_log(TINY)
        for cut in range(4):
            # Only a part is flushed.
            opened.append_many(7 + seed % 5, flush_every=3)
            opened = opened.cut_power(100 * seed + cut)
            opened.flush()

            assert found(opened) == [], f"seed {seed}, cut {cut}"


def test_a_power_failure_does_not_corrupt_an_index_that_recovery_created() -> None:
    for seed in range(40):
        opened = new_log(TINY)
        opened.append_many(12)
        # The next process recreates the index that the earlier one was about to sync.
        again = opened.kill()
        again.flush()

        assert found(again.cut_power(seed)) == [], f"seed {seed}"


def test_a_scrub_writes_no_footer_into_a_segment_truncated_meanwhile() -> None:
    opened = tiny_log()
    size = len(image_of(opened.disk)[name_of(SEALED)])
    opened.disk.flip_bit(opened.path(SEALED), size - 5, 3)
    (scrub, _) = scrubs(opened)
    assert scrub.spoiled == ["footer"]

    opened.log.truncate(3)
    before = image_of(opened.disk)
    scrub.repair()

    assert image_of(opened.disk) == before
    assert read_all(opened.kill().log) == expected(0, 3)


def test_a_scrub_skips_bytes_that_are_not_durable() -> None:
    opened = tiny_log()
    end = len(image_of(opened.disk)[name_of(ACTIVE)])
    opened.append_many(2)
    opened.disk.open(opened.path(ACTIVE)).write_at(end + 3, [b"?"])

    assert found(opened) == []
    opened.flush()
    assert found(opened) == [(ACTIVE + 2, ACTIVE + 3)]


def test_a_scrub_checks_only_the_durable_part_of_an_unflushed_segment() -> None:
    opened = tiny_log()
    opened.append_many(10)

    assert [scrub.base_offset for scrub in scrubs(opened)] == [SEALED, ACTIVE]
    assert found(opened) == []


def test_a_scrub_skips_an_offline_log() -> None:
    opened = tiny_log()
    opened.log.fail("fsync failed")

    assert opened.log.begin_scrub(from_offset=0) is None


def test_a_scrub_step_ends_at_its_cost_and_small_batches_cost_4_kib() -> None:
    opened = tiny_log()
    scrub = opened.log.begin_scrub(from_offset=0)
    assert scrub is not None

    costs: list[int] = []
    while not scrub.is_done:
        costs.append(scrub.run(2 * 4 * KiB))

    index_size = len(image_of(opened.disk)[name_of(SEALED, ".index")])
    assert costs == [8 * KiB, 8 * KiB, 4 * KiB + index_size]


@pytest.mark.parametrize("is_cold", [True, False])
def test_a_scrub_leaves_cached_pages_in_the_page_cache(*, is_cold: bool) -> None:
    opened = tiny_log()
    if is_cold:
        opened.disk.cold_paths |= {opened.path(SEALED), opened.path(ACTIVE)}
    opened.disk.calls.clear()

    list(scrubs(opened))

    dropped = [path for operation, path, *_ in opened.disk.calls if operation == "drop_cache"]
    assert dropped == ([opened.path(SEALED)] if is_cold else [])


def test_a_scrub_changes_nothing() -> None:
    opened = tiny_log()
    before = image_of(opened.disk)
    opened.disk.calls.clear()

    assert found(opened) == []

    changing = {"write_at", "sync", "truncate", "rename", "remove", "sync_directory", "create"}
    assert changing.isdisjoint(str(call[0]) for call in opened.disk.calls)
    assert image_of(opened.disk) == before
    assert CHECKPOINT in {str(call[1]) for call in opened.disk.calls}
