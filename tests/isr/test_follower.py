"""Steps of a follower after a leader's answer."""

import pytest
from msgspec.structs import replace

from tests.isr.test_divergence import shape
from tidelog.isr.divergence import LogShape
from tidelog.isr.follower import (
    Append,
    Drop,
    FetchPosition,
    LeaderAnswer,
    PartitionFollower,
    Refuse,
    Restart,
    Step,
    Truncate,
)
from tidelog.logstore.damage import DamagedRange
from tidelog.wire.messages.replication import Diverging


def follower(high_watermark: int = 0) -> PartitionFollower:
    return PartitionFollower(leader_id=1, leader_epoch=7, high_watermark=high_watermark)


def answer(
    log: LogShape, *, high_watermark: int = 0, parts: Diverging | None = None, epoch: int = 7
) -> LeaderAnswer:
    return LeaderAnswer(epoch, follower().position(log), high_watermark, 0, parts)


def test_a_follower_fetches_from_its_log_end_with_its_last_epoch() -> None:
    assert follower().position(shape(1, 3)) == FetchPosition(2, 3)
    assert follower().position(shape()) == FetchPosition(0, None)


def test_the_high_watermark_advances_only_after_the_append() -> None:
    log, one = shape(1, 1), follower()
    said = answer(log, high_watermark=4)

    assert one.answered(log, said) == Append()
    one.appended(said, log_end_offset=3)

    assert one.high_watermark == 3


def test_a_log_is_a_prefix_of_the_leaders_only_after_the_first_append() -> None:
    log, one = shape(1, 1), follower()
    assert not one.is_beginning

    one.appended(answer(log), log_end_offset=2)

    assert one.is_beginning


@pytest.mark.invariant("I52")
def test_a_diverging_log_is_truncated_and_the_high_watermark_ignored() -> None:
    """I52, KAFKA-14704."""
    log, one = shape(1, 2, 2), follower()

    step = one.answered(log, answer(log, high_watermark=3, parts=Diverging(1, 1)))

    assert step == Truncate(1)
    assert one.high_watermark == 0


def test_a_log_without_common_records_restarts() -> None:
    log = shape(2, 2, start=10)

    assert follower().answered(log, answer(log, parts=Diverging(1, 5))) == Restart(5)


@pytest.mark.invariant("I57")
def test_an_answer_in_another_leader_epoch_is_dropped() -> None:
    log = shape(1)

    assert follower().answered(log, answer(log, epoch=6)) == Drop()


@pytest.mark.invariant("I57")
def test_an_answer_for_another_fetch_offset_is_dropped() -> None:
    """I57: the log was truncated, restarted or has grown meanwhile."""
    assert follower().answered(shape(1, 1), answer(shape(1))) == Drop()
    assert follower().answered(shape(2), answer(shape(1))) == Drop()


@pytest.mark.invariant("I54")
def test_a_follower_below_the_leaders_log_start_offset_restarts_there() -> None:
    """I54, KAFKA-9491: the high watermark moves up as well."""
    log, one = shape(1, 1), follower()

    step = one.out_of_range(log, one.position(log), leader_start=50, leader_end=90)
    assert step == Restart(50)
    one.restarted(50)

    assert one.high_watermark == 50


@pytest.mark.invariant("I55")
def test_an_empty_log_beyond_the_leaders_log_end_restarts() -> None:
    log, one = LogShape(50, 50, shape().leader_epochs), follower()

    step = one.out_of_range(log, one.position(log), leader_start=0, leader_end=40)

    assert step == Restart(40)


def test_a_log_that_ends_where_the_leader_begins_is_cut_at_its_own_start_at_the_earliest() -> None:
    log = shape(2, 2, start=10)

    assert follower().answered(log, answer(log, parts=Diverging(1, 10))) == Truncate(10)
    assert follower().answered(log, answer(log, parts=Diverging(1, 9))) == Restart(9)


@pytest.mark.invariant("I55")
@pytest.mark.parametrize(("leader_start", "leader_end"), [(2, 2), (2, 9), (0, 2), (0, 9)])
def test_an_offset_within_the_leaders_log_is_not_out_of_range_any_more(
    leader_start: int, leader_end: int
) -> None:
    """The leader's log has changed meanwhile; the follower asks again."""
    log, one = shape(1, 1), follower()

    step = one.out_of_range(
        log, one.position(log), leader_start=leader_start, leader_end=leader_end
    )

    assert step == Drop()


@pytest.mark.invariant("I55")
def test_a_stale_offset_out_of_range_is_dropped() -> None:
    one, old = follower(), follower().position(shape())

    assert one.out_of_range(shape(1), old, leader_start=50, leader_end=90) == Drop()


@pytest.mark.invariant("I37")
def test_the_high_watermark_falls_only_with_a_truncation() -> None:
    one, log = follower(high_watermark=5), shape(*[1] * 8)

    one.appended(answer(log, high_watermark=3), log_end_offset=8)
    assert one.high_watermark == 5

    one.truncated(4)
    assert one.high_watermark == 4


def test_a_follower_does_not_truncate_records_that_it_knows_to_be_committed() -> None:
    log, one = shape(1, 1, 1), follower(high_watermark=2)

    step = one.answered(log, answer(log, parts=Diverging(1, 1)))

    assert step == Refuse(1)
    assert one.committed_count(log, 1) == 1
    assert one.high_watermark == 2


def test_a_follower_truncates_at_its_high_watermark() -> None:
    log, one = shape(1, 1, 1), follower(high_watermark=1)

    assert one.answered(log, answer(log, parts=Diverging(1, 1))) == Truncate(1)


@pytest.mark.parametrize(
    ("data_loss_epoch", "step"), [(None, Refuse(1)), (2, Refuse(1)), (3, Truncate(1))]
)
def test_committed_records_are_truncated_if_a_loss_was_accepted_since(
    data_loss_epoch: int | None, step: Step
) -> None:
    log, one = shape(1, 2, 2), follower(high_watermark=3)
    one.data_loss_epoch = data_loss_epoch

    assert one.answered(log, answer(log, parts=Diverging(1, 1))) == step


def test_a_follower_does_not_restart_below_committed_records() -> None:
    log, one = shape(1, 1, start=10), follower(high_watermark=12)

    step = one.answered(log, answer(log, parts=Diverging(None, 0)))

    assert step == Refuse(10)
    assert one.committed_count(log, 0) == 2


def test_a_follower_behind_the_leaders_log_start_drops_committed_records() -> None:
    """The leader has deleted them."""
    log, one = shape(1, 1), follower(high_watermark=2)

    assert one.out_of_range(log, one.position(log), leader_start=50, leader_end=90) == Restart(50)


def test_a_follower_longer_than_its_leader_does_not_truncate_committed_records() -> None:
    log, one = shape(1, 1, 1), follower(high_watermark=2)

    assert one.out_of_range(log, one.position(log), leader_start=0, leader_end=1) == Refuse(1)
    assert one.out_of_range(log, one.position(log), leader_start=0, leader_end=2) == Truncate(2)


def test_an_empty_log_restarts_wherever_its_leader_begins() -> None:
    log, one = LogShape(50, 50, shape().leader_epochs), follower(high_watermark=50)

    assert one.out_of_range(log, one.position(log), leader_start=0, leader_end=40) == Restart(40)


def test_damaged_records_are_no_reason_to_refuse() -> None:
    """The follower has lost them itself."""
    whole, one = shape(1, 1, 1, 1), follower(high_watermark=4)
    damaged = replace(whole, damage=(DamagedRange(2, 4),))

    assert one.answered(damaged, answer(damaged, parts=Diverging(1, 2))) == Truncate(2)
    assert one.answered(damaged, answer(damaged, parts=Diverging(1, 1))) == Refuse(1)
    assert one.committed_count(damaged, 1) == 1


def test_a_log_whose_disk_went_back_is_truncated_where_it_differs() -> None:
    """Its last record is the leader's, so the leader lacks none: see `find_stale`."""
    log, one = shape(1, 1, 3, 3), follower(high_watermark=4)

    assert one.answered(log, answer(log, parts=Diverging(None, 1))) == Truncate(1)
    assert one.answered(log, answer(log, parts=Diverging(None, 0))) == Refuse(0)


def test_a_divergence_below_the_leaders_log_shows_no_disk_that_went_back() -> None:
    log, one = shape(1, 1, 3, 3), follower(high_watermark=4)
    said = LeaderAnswer(7, one.position(log), 0, 2, Diverging(None, 1))

    assert one.answered(log, said) == Refuse(1)
