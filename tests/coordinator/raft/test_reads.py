"""Tests of reads that wait until the leader is confirmed."""

from tidelog.coordinator.raft.reads import ReadQueue
from tidelog.coordinator.raft.ready import ReadState


def test_reads_that_come_together_share_a_round() -> None:
    reads = ReadQueue()
    reads.ask(1)
    reads.ask(2)

    assert reads.begin_round(10)

    assert reads.take_confirmed(0) == []
    assert reads.take_confirmed(1) == [ReadState(1, 10), ReadState(2, 10)]
    assert reads.take_confirmed(1) == []


def test_a_read_that_comes_after_a_round_began_waits_for_the_next() -> None:
    reads = ReadQueue()
    reads.ask(1)
    reads.begin_round(10)
    reads.ask(2)

    assert reads.take_confirmed(1) == [ReadState(1, 10)]

    assert reads.begin_round(12)
    assert reads.take_confirmed(1) == []
    assert reads.take_confirmed(2) == [ReadState(2, 12)]


def test_a_later_round_confirms_the_earlier_ones() -> None:
    reads = ReadQueue()
    for number in (1, 2):
        reads.ask(number)
        reads.begin_round(number * 10)

    assert reads.take_confirmed(2) == [ReadState(1, 10), ReadState(2, 20)]


def test_without_reads_there_is_no_round() -> None:
    assert not ReadQueue().begin_round(10)
