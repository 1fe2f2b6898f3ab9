"""Tests of log divergence, exhaustively against a comparison record by record."""

import msgspec
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tidelog.isr.divergence import (
    LogShape,
    find_divergence,
    find_stale,
    find_truncation,
    truncation_offset,
)
from tidelog.logstore.damage import DamagedRange
from tidelog.logstore.leader_epochs import LeaderEpochs
from tidelog.wire.errors import OffsetOutOfRangeError
from tidelog.wire.messages.replication import Diverging


def shape(*epochs: int, start: int = 0) -> LogShape:
    """Return the shape of a log whose records, from `start` on, were written by these epochs."""
    entries = LeaderEpochs()
    for offset, epoch in enumerate(epochs, start):
        entries.assign(epoch, offset)
    return LogShape(start, start + len(epochs), entries)


def ask(leader: LogShape, follower: LogShape) -> Diverging | None:
    last = follower.leader_epochs.latest if follower.log_end_offset else None
    return find_divergence(leader, fetch_offset=follower.log_end_offset, last_fetched_epoch=last)


def test_a_prefix_of_the_leaders_log_does_not_diverge() -> None:
    assert ask(shape(1, 1, 2, 4), shape(1, 1, 2)) is None


@pytest.mark.invariant("I50")
def test_an_empty_log_does_not_diverge() -> None:
    assert ask(shape(1, 1), shape()) is None


def test_a_follower_with_more_of_the_same_epoch_truncates_to_the_leaders_end() -> None:
    leader, follower = shape(1, 1, 3), shape(1, 1, 1, 1)

    diverging = ask(leader, follower)

    assert diverging == Diverging(1, 2)
    assert truncation_offset(follower, Diverging(1, 2)) == 2


def test_an_epoch_unknown_to_the_leader_takes_two_rounds() -> None:
    """KIP-279, KAFKA-6361: after a fast double failover neither has the other's last epoch."""
    leader, follower = shape(1, 1, 1, 3, 3), shape(1, 1, 2, 2)

    diverging = ask(leader, follower)

    assert diverging == Diverging(1, 3)
    assert truncation_offset(follower, Diverging(1, 3)) == 2
    assert ask(leader, shape(1, 1)) is None


@pytest.mark.invariant("I49")
def test_an_epoch_later_than_the_leaders_does_not_match_its_log_end() -> None:
    """I49: the follower's records of a later epoch were never committed."""
    assert ask(shape(1, 1, 1), shape(1, 1, 2)) == Diverging(1, 3)


@pytest.mark.invariant("I50")
def test_all_epochs_of_the_leader_may_be_later() -> None:
    leader, follower = shape(5, 5, start=10), shape(*[4] * 12)

    diverging = ask(leader, follower)

    assert diverging == Diverging(None, 10)
    assert truncation_offset(follower, Diverging(None, 10)) == 10


def test_at_the_leaders_log_start_epochs_are_not_compared() -> None:
    assert ask(shape(5, 5, start=10), shape(*[4] * 10)) is None


def test_a_follower_with_only_later_epochs_truncates_everything() -> None:
    leader, follower = shape(1, 2), shape(3, 3, 3)

    assert truncation_offset(follower, Diverging(2, 2)) == 0
    assert ask(leader, follower) == Diverging(2, 2)


@pytest.mark.invariant("I55")
@pytest.mark.parametrize("fetch_offset", [9, 13])
def test_an_offset_that_the_leader_does_not_have_is_out_of_range(fetch_offset: int) -> None:
    with pytest.raises(OffsetOutOfRangeError) as caught:
        find_divergence(shape(5, 5, start=10), fetch_offset=fetch_offset, last_fetched_epoch=None)

    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (10, 12)


@pytest.mark.parametrize(
    ("offset", "end_offset", "count"),
    [
        (10, 20, 4),
        (0, 99, 4),
        (12, 20, 3),
        (10, 14, 1),
        (13, 15, 0),
        (14, 17, 1),
        (18, 19, 1),
        (19, 25, 1),
        (20, 25, 0),
        (15, 12, 0),
    ],
)
def test_the_intact_records_of_a_range_are_those_of_the_log_without_damage(
    offset: int, end_offset: int, count: int
) -> None:
    log = LogShape(10, 20, LeaderEpochs(), (DamagedRange(11, 16), DamagedRange(17, 18)))

    assert log.intact_count(offset, end_offset) == count


Lineage = list[int]


@st.composite
def two_logs(draw: st.DrawFn) -> tuple[Lineage, Lineage]:
    """Return two logs that leaders of growing epochs may leave.

    Every epoch is written by one leader, which begins with a copy of one of the logs.
    """
    logs: tuple[Lineage, Lineage] = ([], [])
    for epoch in range(1, 7):
        mine = draw(st.integers(0, 1))
        leader, follower = logs[mine], logs[1 - mine]
        if draw(st.booleans()):  # The other one follows for a while.
            common = 0
            while common < min(map(len, logs)) and leader[common] == follower[common]:
                common += 1
            del follower[common:]
            follower += leader[common : common + draw(st.integers(0, 4))]
        written = draw(st.integers(0, 3))
        leader += [epoch] * written
        shared = draw(st.integers(0, written))
        if len(follower) == len(leader) - written and follower == leader[: len(follower)]:
            follower += [epoch] * shared
    return logs


@pytest.mark.invariant("I49")
@given(two_logs())
def test_rounds_of_fetches_find_the_divergence(logs: tuple[Lineage, Lineage]) -> None:
    leader, follower = shape(*logs[0]), list(logs[1])
    common = 0
    while common < min(map(len, logs)) and logs[0][common] == logs[1][common]:
        common += 1

    rounds = 0
    while (diverging := ask(leader, shape(*follower))) is not None:
        end = truncation_offset(shape(*follower), diverging)
        assert end < len(follower), "the fetches do not end"
        del follower[end:]
        rounds += 1

    assert follower == logs[1][: len(follower)]
    assert follower == logs[0][: len(follower)]
    assert len(follower) == common
    assert rounds <= 7


def compare(leader: LogShape, follower: LogShape) -> Diverging | None:
    epochs = follower.leader_epochs.entries
    return find_stale(leader, epochs, fetch_offset=follower.log_end_offset)


def test_a_reverted_disk_is_found_by_the_start_offsets_of_epochs() -> None:
    """Seed 8600509: offset 2 has epoch 2 again, as before its truncation."""
    leader, follower = shape(1, 1, 3, 3, 3), shape(1, 1, 2, 3, 3)

    assert ask(leader, follower) is None, "the last epoch is the same"
    diverging = compare(leader, follower)

    assert diverging == Diverging(None, 2)
    assert truncation_offset(follower, Diverging(None, 2)) == 2


def test_a_log_reverted_at_its_start_is_truncated_fully() -> None:
    diverging = compare(shape(2, 2, 3, start=5), shape(1, 2, 3, start=5))

    assert diverging == Diverging(None, 5)


def test_logs_with_different_start_offsets_are_compared_where_they_overlap() -> None:
    assert compare(shape(1, 1, 2, 2, 3), shape(2, 3, start=3)) is None
    assert compare(shape(2, 3, start=3), shape(1, 1, 2, 2, 3)) is None
    assert compare(shape(3, 3, start=8), shape(1, 1, 2)) is None
    assert compare(shape(), shape(1)) is None
    assert compare(shape(1), shape()) is None


@given(
    epochs=st.lists(st.integers(1, 5), min_size=1, max_size=9).map(sorted),
    starts=st.tuples(st.integers(0, 8), st.integers(0, 8)),
    went_back=st.none() | st.tuples(st.integers(0, 8), st.integers(0, 4)),
)
def test_a_reverted_log_diverges_where_it_was_reverted(
    epochs: list[int], starts: tuple[int, int], went_back: tuple[int, int] | None
) -> None:
    """Reverted records have an older epoch. Epochs still do not fall: otherwise it is damage."""
    changed = list(epochs)
    if went_back is not None and went_back[0] < len(epochs):
        at, epoch = went_back
        changed[at] = min(epoch, epochs[at])
    begins = [min(start, len(epochs) - 1) for start in starts]
    leader = shape(*epochs[begins[0] :], start=begins[0])
    if changed != sorted(changed):
        return
    follower = shape(*changed[begins[1] :], start=begins[1])

    diverging = compare(leader, follower)

    both = range(max(begins), len(epochs))
    parts = [offset for offset in both if changed[offset] != epochs[offset]]
    assert (None if diverging is None else diverging.end_offset) == min(parts, default=None)


def lost(leader: LogShape, read: LogShape, *, is_damaged: bool = False) -> Diverging | None:
    """Return the answer to a consumer that has read a log to its end."""
    last = read.leader_epochs.latest
    assert last is not None
    return find_truncation(
        msgspec.structs.replace(leader, damage=(DamagedRange(0, 1),) if is_damaged else ()),
        fetch_offset=read.log_end_offset,
        last_fetched_epoch=last,
    )


def test_a_consumer_that_has_read_a_prefix_of_the_log_has_lost_nothing() -> None:
    assert lost(shape(1, 1, 2, 4), shape(1, 1, 2)) is None


def test_a_consumer_learns_where_its_epoch_ends_in_the_log() -> None:
    assert lost(shape(1, 1, 3, 3, 3), shape(1, 1, 1, 1)) == Diverging(1, 2)
    assert lost(shape(1, 1), shape(1, 1, 1, 1)) == Diverging(1, 2)


def test_a_consumer_of_an_epoch_that_is_not_in_the_log_has_lost_at_least_its_last_record() -> None:
    assert lost(shape(1, 1, 1, 3), shape(1, 2, 2)) == Diverging(1, 2)


def test_damage_may_hide_an_epoch_but_not_a_later_one() -> None:
    assert lost(shape(1, 1, 1, 3), shape(1, 2, 2), is_damaged=True) is None
    assert lost(shape(1, 3, 3, 3), shape(1, 2, 2), is_damaged=True) == Diverging(1, 1)


def test_a_consumer_at_the_log_start_has_lost_nothing_whatever_wrote_the_deleted_records() -> None:
    assert lost(shape(5, 5, start=3), shape(1, 1, 1)) is None
    assert lost(shape(start=3), shape(1, 1, 1)) is None


def test_a_consumer_of_an_epoch_before_all_of_the_log_has_lost_what_the_log_has() -> None:
    assert lost(shape(5, 5, start=3), shape(1, 1, 1, 1)) == Diverging(None, 3)
    assert lost(shape(), shape(1, 1)) == Diverging(None, 0)


_FIRST_OWN_EPOCH = 4


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[int], list[int], int]:
    """Return the epochs of two logs with a common beginning, and the start of the first one.

    An epoch has one leader, so records of one epoch at one offset have the same records below.
    """
    common = sorted(draw(st.lists(st.integers(1, 3), max_size=5)))
    first = sorted(draw(st.lists(st.sampled_from([4, 6, 8]), max_size=5)))
    second = sorted(draw(st.lists(st.sampled_from([5, 7, 9]), max_size=5)))
    start = draw(st.integers(0, len(common) + len(first)))
    return common + first, common + second, start


@given(histories())
def test_a_consumer_has_lost_something_if_and_only_if_its_last_record_is_not_in_the_log(
    drawn: tuple[list[int], list[int], int],
) -> None:
    log, read, start = drawn
    common = sum(epoch < _FIRST_OWN_EPOCH for epoch in read)
    assume(read and len(read) >= start)
    leader = shape(*log[start:], start=start)
    is_lost = len(read) > common and len(read) > start

    found = lost(leader, shape(*read))

    assert (found is not None) == is_lost
    assert found is None or max(common, start) <= found.end_offset < len(read)


def test_a_deletion_beyond_the_consumer_is_no_loss() -> None:
    assert lost(shape(5, 5, start=7), shape(1, 1, 1)) is None


def test_a_log_without_known_epochs_proves_a_loss_only_by_its_end() -> None:
    unknown = LogShape(0, 3, LeaderEpochs())
    assert lost(unknown, shape(1, 1, 1)) is None
    assert lost(unknown, shape(1, 1, 1, 1)) == Diverging(None, 3)
