"""A broker lives through everything and keeps its promises."""

import pytest

from tests.simulation.life import run_life
from tests.simulation.raw_clients import BrokenPromiseError, Ledger


@pytest.mark.parametrize("seed", range(1, 5))
def test_nothing_that_was_acknowledged_is_lost_in_a_life(seed: int) -> None:
    report = run_life(seed, 8.0)

    assert report.acknowledged_count > 100
    assert report.fault_counts


def test_a_ledger_accepts_what_agrees() -> None:
    ledger = Ledger()
    ledger.note_acknowledged((0, 5), b"value")
    ledger.note_read((0, 5), b"value")
    ledger.note_read((0, 6), b"never acknowledged")

    ledger.check_all_read()


def test_a_ledger_notices_two_records_at_one_place() -> None:
    ledger = Ledger()
    ledger.note_acknowledged((0, 5), b"value")

    with pytest.raises(BrokenPromiseError, match=r"\(0, 5\) was b'value' and is now b'other'"):
        ledger.note_read((0, 5), b"other")


def test_a_ledger_notices_one_record_at_two_places() -> None:
    ledger = Ledger()
    ledger.note_read((0, 5), b"value")

    with pytest.raises(BrokenPromiseError, match=r"is at \(0, 5\) and again at \(0, 6\)"):
        ledger.note_acknowledged((0, 6), b"value")


def test_a_ledger_notices_what_is_lost() -> None:
    ledger = Ledger()
    ledger.note_acknowledged((0, 5), b"value")

    with pytest.raises(BrokenPromiseError, match="1 acknowledged records are lost"):
        ledger.check_all_read()
