"""Replicas find where their logs diverge by leader epochs. KIP-101, KIP-279."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.logstore.leader_epochs import LeaderEpochs

SAMPLE = LeaderEpochs([(2, 0), (3, 40), (7, 100)])


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [
        (0, None),
        (1, None),
        (2, (2, 40)),
        (3, (3, 100)),
        (4, (3, 100)),
        (6, (3, 100)),
        (7, (7, 150)),
        (8, (7, 150)),
    ],
)
def test_an_epoch_ends_where_the_next_one_begins(
    epoch: int, answer: tuple[int, int] | None
) -> None:
    """The largest epoch not above the one asked for, and its end. KIP-279."""
    assert SAMPLE.end_offset_for(epoch, log_end_offset=150) == answer


@pytest.mark.invariant("I50")
def test_an_empty_log_knows_no_epoch() -> None:
    epochs = LeaderEpochs()

    assert epochs.latest is None
    assert epochs.entries == ()
    assert epochs.end_offset_for(0, log_end_offset=0) is None
    assert epochs.epoch_before(10) == 0
    assert epochs.may_assign(0)


@pytest.mark.invariant("I51")
def test_an_epoch_that_wrote_nothing_is_forgotten() -> None:
    epochs = LeaderEpochs()
    epochs.assign(1, 0)
    epochs.assign(2, 10)

    epochs.assign(3, 10)

    assert epochs.entries == ((1, 0), (3, 10))
    assert epochs.latest == 3


def test_an_older_epoch_cannot_write_again() -> None:
    assert not SAMPLE.may_assign(6)
    assert SAMPLE.may_assign(7)
    with pytest.raises(AssertionError):
        LeaderEpochs([(5, 0)]).assign(4, 10)


@pytest.mark.parametrize(("offset", "epoch"), [(0, 0), (1, 2), (40, 2), (41, 3), (101, 7)])
def test_the_epoch_of_the_record_before_an_offset_is_known(offset: int, epoch: int) -> None:
    assert SAMPLE.epoch_before(offset) == epoch
    assert SAMPLE.known_before(offset) == (epoch or None)
    assert LeaderEpochs().known_before(offset) is None


@pytest.mark.invariant("I51")
def test_a_truncation_removes_epochs_that_begin_at_or_after_it() -> None:
    epochs = LeaderEpochs([(2, 0), (3, 40), (7, 100)])

    epochs.truncate_end(100)

    assert list(epochs.entries) == [(2, 0), (3, 40)]
    epochs.truncate_end(0)
    assert list(epochs.entries) == []


@pytest.mark.parametrize(
    ("log_start_offset", "entries"),
    [
        (0, ((2, 0), (3, 40), (7, 100))),
        (39, ((2, 39), (3, 40), (7, 100))),
        (40, ((3, 40), (7, 100))),
        (120, ((7, 120),)),
    ],
)
def test_a_new_log_start_removes_epochs_that_end_at_or_before_it(
    log_start_offset: int, entries: tuple[tuple[int, int], ...]
) -> None:
    epochs = LeaderEpochs(SAMPLE.entries)

    epochs.truncate_start(log_start_offset)

    assert epochs.entries == entries


def test_a_log_start_below_the_first_known_epoch_does_not_extend_it() -> None:
    epochs = LeaderEpochs([(3, 40), (7, 100)])

    for log_start_offset in (5, 40):
        epochs.truncate_start(log_start_offset)
        assert epochs.entries == ((3, 40), (7, 100))


@given(
    steps=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 3))),
    cut=st.integers(0, 40),
    start=st.integers(0, 40),
    asked=st.integers(0, 12),
)
def test_leader_epochs_agree_with_the_epochs_of_all_records(
    steps: list[tuple[int, int]], cut: int, start: int, *, asked: int
) -> None:
    epochs, naive, epoch = LeaderEpochs(), list[int](), 0
    for step, count in steps:
        epoch += step
        epochs.assign(epoch, len(naive))
        naive += [epoch] * count
    end = min(cut, len(naive))
    start = min(start, end)
    epochs.truncate_end(end)
    epochs.truncate_start(start)
    left = dict(enumerate(naive[:end]))
    readable = {offset: of for offset, of in left.items() if offset >= start}
    known = readable or dict(list(left.items())[-1:])

    answer = epochs.end_offset_for(asked, log_end_offset=end)

    fitting = [of for of in known.values() if of <= asked]
    assert (answer is not None) == bool(fitting)
    if answer is not None:
        last = max(offset for offset, of in known.items() if of == fitting[-1])
        assert answer == (fitting[-1], last + 1)
    for offset in range(start + 1, end + 1):
        assert epochs.epoch_before(offset) == naive[offset - 1]


def test_a_repaired_record_moves_the_start_of_its_epoch() -> None:
    epochs = LeaderEpochs([(2, 0), (5, 100)])

    assert [epoch for epoch in range(8) if epochs.fits(epoch, 50)] == [2, 3, 4, 5]
    epochs.learn(2, 40)
    epochs.learn(3, 50)
    epochs.learn(5, 80)
    epochs.learn(5, 90)

    assert epochs.entries == ((2, 0), (3, 50), (5, 80))
    assert [epoch for epoch in range(8) if epochs.fits(epoch, 79)] == [3, 4, 5]
    assert [epoch for epoch in range(8) if epochs.fits(epoch, 80)] == [5, 6, 7]


def test_without_known_epochs_every_epoch_fits() -> None:
    epochs = LeaderEpochs()

    assert epochs.fits(7, 3)
    epochs.learn(7, 3)

    assert epochs.entries == ((7, 3),)
    assert not epochs.fits(8, 2)


def test_the_epoch_of_every_record_of_the_log_is_known() -> None:
    epochs = LeaderEpochs([(2, 10), (5, 20)])

    assert epochs.wrote(2, 10)
    assert epochs.wrote(2, 19)
    assert epochs.wrote(5, 20)
    assert not epochs.wrote(3, 15)
    assert not epochs.wrote(2, 20)
    assert epochs.wrote(9, 9)
    assert LeaderEpochs().wrote(1, 0)
