"""Tests of log presence: the loss of files is detected before a log is opened."""

from functools import partial
from random import Random

import pytest

from tests.logstore.crashes import POWER_CUTS, crash
from tests.logstore.logs import CHECKPOINT, DIRECTORY, Opened, new_log, reopen
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.recovery.log_presence import LogPresence, presence_of


def _ready() -> Opened:
    opened = new_log()
    opened.append_many(60, flush_every=10)
    opened.flush(checkpoint=True)
    opened.append_many(5)
    opened.flush()
    return opened


def _remains(disk: FaultyDisk) -> LogPresence:
    before = len(disk.changes)
    found = presence_of(disk, DIRECTORY)
    assert len(disk.changes) == before, "nothing is changed"
    return found


def test_an_unchanged_log_is_intact() -> None:
    opened = _ready()
    assert _remains(opened.disk) is LogPresence.INTACT
    assert _remains(opened.disk.kill()) is LogPresence.INTACT


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_log_without_a_checkpoint_is_partial(is_gone: bool) -> None:
    disk = _ready().disk
    if is_gone:
        disk.lose_file(CHECKPOINT)
    else:
        disk.flip_bit(CHECKPOINT, 30, 0)

    assert _remains(disk) is LogPresence.PARTIAL


@pytest.mark.parametrize("at", [16, 100])
def test_a_log_without_checkpoint_and_headers_is_partial_while_a_batch_is_valid(at: int) -> None:
    opened = _ready()
    opened.disk.lose_file(CHECKPOINT)
    for base in opened.segment_bases():
        opened.disk.flip_bit(opened.path(base), at, 0)

    assert _remains(opened.disk) is LogPresence.PARTIAL


def test_a_log_without_headers_and_batches_is_missing() -> None:
    opened = _ready()
    opened.disk.lose_file(CHECKPOINT)
    for base in opened.segment_bases():
        opened.disk.cut_file(opened.path(base), 100)
        opened.disk.flip_bit(opened.path(base), 16, 0)

    assert _remains(opened.disk) is LogPresence.MISSING


def test_a_log_without_sealed_segments_is_intact_with_damage() -> None:
    opened = _ready()
    for base in opened.segment_bases()[:-1]:
        opened.disk.lose_file(opened.path(base))

    assert _remains(opened.disk) is LogPresence.INTACT


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_log_with_a_missing_or_short_active_segment_is_partial(is_gone: bool) -> None:
    opened = _ready()
    path = opened.path(opened.segment_bases()[-1])
    if is_gone:
        opened.disk.lose_file(path)
    else:
        opened.disk.cut_file(path, 100)

    assert _remains(opened.disk) is LogPresence.PARTIAL


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_log_without_segments_is_missing(has_checkpoint: bool) -> None:
    opened = _ready()
    for base in opened.segment_bases():
        opened.disk.lose_file(opened.path(base))
    if not has_checkpoint:
        opened.disk.lose_file(CHECKPOINT)

    assert _remains(opened.disk) is LogPresence.MISSING


def test_a_log_with_only_empty_segments_is_missing() -> None:
    opened = _ready()
    for base in opened.segment_bases():
        opened.disk.cut_file(opened.path(base), 0)
    opened.disk.lose_file(CHECKPOINT)

    assert _remains(opened.disk) is LogPresence.MISSING


def test_a_log_without_a_directory_is_missing() -> None:
    assert _remains(FaultyDisk()) is LogPresence.MISSING


def test_a_recovered_log_is_intact_after_a_crash_at_any_time() -> None:
    """A checkpoint guarantees the header of a file as well (seed 7400400)."""
    number = 0
    while True:
        disk = FaultyDisk()
        place = crash(disk, number, partial(new_log, disk=disk))
        if place is None:
            break
        number += 1
        for seed in POWER_CUTS:
            again = reopen(disk.kill())
            again.flush(checkpoint=True)
            assert _remains(again.disk.power_cut(Random(seed))) is LogPresence.INTACT, place
    assert number > 3
