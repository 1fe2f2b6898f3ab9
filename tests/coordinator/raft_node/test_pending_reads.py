"""Reads wait for what was committed before them, and no longer."""

from tidelog.coordinator.raft_node.pending_reads import PendingReads


def test_a_read_is_over_when_it_is_confirmed_and_its_index_is_applied() -> None:
    reads = PendingReads()
    first, second = reads.add(), reads.add()

    reads.applied(10)
    reads.confirmed(first.context, index=11)
    reads.applied(10)
    assert not first.is_over.is_set()

    reads.applied(11)
    assert first.is_over.is_set()
    assert not second.is_over.is_set(), "nobody has confirmed it"


def test_a_read_of_which_nobody_waits_any_more_is_forgotten() -> None:
    reads = PendingReads()
    read = reads.add()

    reads.remove(read)
    reads.confirmed(read.context, index=1)
    reads.applied(1)

    assert not read.is_over.is_set()


def test_who_leads_no_more_keeps_nobody_waiting() -> None:
    reads = PendingReads()
    read = reads.add()

    reads.wake_all()

    assert read.is_over.is_set()
