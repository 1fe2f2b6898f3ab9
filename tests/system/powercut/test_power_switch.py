"""Tests that the power is cut once, at the aimed moment."""

from random import Random

import pytest

from tests.paths import ROOT
from tests.system.powercut.power_switch import Moment, PowerSwitch, aim
from tests.system.powercut.volatile_disk import BLOCK_BYTES

GOLDEN = ROOT / "tests" / "golden"
SEGMENT = (GOLDEN / "segment_v1.bin").read_bytes()
CHECKPOINT = (GOLDEN / "checkpoint_v1.bin").read_bytes()
COMMIT = bytes.fromhex("c03b3998 00000002 0000000a")


def cut_at(moment: Moment, requests: list[bytes | None], *, number: int, later: int = 0) -> str:
    """Return the call after which the power is cut; `None` among the requests is a flush."""
    calls: list[str] = []
    cuts: list[str] = []
    switch = PowerSwitch(moment, lambda: cuts.append(calls[-1]), number=number, later=later)
    switch.is_armed = True
    for place, data in enumerate(requests):
        if data is not None:
            calls.append(f"{place} written")
            switch.wrote(data)
            continue
        calls.append(f"{place} before")
        switch.will_flush()
        calls.append(f"{place} after")
        switch.flushed()
    assert switch.is_pulled == bool(cuts)
    assert len(cuts) <= 1
    return "".join(cuts)


@pytest.mark.parametrize(
    ("moment", "number", "expected"),
    [
        (Moment.WRITE, 1, "0 written"),
        (Moment.WRITE, 3, "3 written"),
        (Moment.FLUSH, 1, "2 before"),
        (Moment.FLUSH, 2, "5 before"),
        (Moment.FLUSHED, 1, "2 after"),
        (Moment.FLUSHED, 3, ""),
    ],
)
def test_writes_and_flushes_are_counted(moment: Moment, number: int, expected: str) -> None:
    requests = [b"a", b"b", None, b"c", b"d", None]

    assert cut_at(moment, requests, number=number) == expected


@pytest.mark.parametrize(
    ("moment", "block"),
    [
        (Moment.SEGMENT, SEGMENT),
        (Moment.CHECKPOINT, CHECKPOINT),
        (Moment.JOURNAL_COMMIT, COMMIT),
    ],
)
def test_blocks_are_recognised_by_their_first_bytes_anywhere_in_a_write(
    moment: Moment, block: bytes
) -> None:
    inside = bytes(BLOCK_BYTES) + block
    elsewhere = b"." + block

    assert cut_at(moment, [b"x", elsewhere, None, block, block], number=2) == "4 written"
    assert cut_at(moment, [b"x", elsewhere, None, inside], number=1) == "3 written"


@pytest.mark.parametrize(("later", "expected"), [(1, "1 before"), (2, "2 written")])
def test_the_cut_may_come_a_few_requests_later(later: int, expected: str) -> None:
    assert cut_at(Moment.SEGMENT, [SEGMENT, None, b"x"], number=1, later=later) == expected


def test_requests_before_arming_do_not_count() -> None:
    cuts: list[bool] = []
    switch = PowerSwitch(Moment.WRITE, lambda: cuts.append(True), number=1)

    switch.wrote(b"while the machine is set up")
    assert not cuts
    switch.is_armed = True
    switch.wrote(b"afterwards")

    assert cuts == [True]


def test_the_switch_can_be_pulled_directly_but_only_once() -> None:
    cuts: list[bool] = []
    switch = PowerSwitch(Moment.WRITE, lambda: cuts.append(True), number=1)
    switch.is_armed = True

    switch.pull()
    switch.pull()
    switch.wrote(b"x")

    assert cuts == [True]


def test_all_moments_are_drawn() -> None:
    random = Random(1)

    assert {aim(random, lambda: None).moment for _ in range(100)} == set(Moment)
