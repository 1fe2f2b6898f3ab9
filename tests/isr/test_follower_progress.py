"""Progress of one follower, as its leader knows it."""

import pytest

from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import NEVER_MS, FollowerProgress, FollowerReport

MEMORY = Durability.REPLICATED


def reported(progress: FollowerProgress, end: int, *, leader_end: int, now_ms: int) -> None:
    report = FollowerReport(2, 12, end, 0)
    progress.reported(report, leader_end_offset=leader_end, durability=MEMORY, now_ms=now_ms)


def test_before_the_first_report_a_position_is_0() -> None:
    progress = FollowerProgress(is_in_sync=True, leader_end_offset=10, now_ms=5)

    assert progress.position(MEMORY) == 0
    assert progress.became_durable(2, 10) is None


def test_a_new_leader_counts_in_sync_replicas_as_caught_up() -> None:
    assert FollowerProgress(is_in_sync=True, leader_end_offset=0, now_ms=5).caught_up_ms == 5
    other = FollowerProgress(is_in_sync=False, leader_end_offset=0, now_ms=5)
    assert other.caught_up_ms == NEVER_MS


@pytest.mark.invariant("I43")
def test_a_follower_that_reaches_an_earlier_log_end_was_caught_up_then() -> None:
    progress = FollowerProgress(is_in_sync=True, leader_end_offset=0, now_ms=0)
    reported(progress, 10, leader_end=10, now_ms=100)
    reported(progress, 10, leader_end=30, now_ms=200)

    reported(progress, 29, leader_end=40, now_ms=300)
    assert progress.caught_up_ms == 200

    reported(progress, 30, leader_end=50, now_ms=400)
    assert progress.caught_up_ms == 200

    reported(progress, 50, leader_end=60, now_ms=500)
    assert progress.caught_up_ms == 400


def test_a_follower_with_all_records_is_caught_up_until_the_next_append() -> None:
    """A follower of an idle partition has nothing to report."""
    progress = FollowerProgress(is_in_sync=True, leader_end_offset=0, now_ms=0)
    reported(progress, 10, leader_end=10, now_ms=100)

    assert not progress.update_caught_up(leader_end_offset=10, durability=MEMORY, now_ms=5000)
    assert progress.update_caught_up(leader_end_offset=11, durability=MEMORY, now_ms=9000)
    assert progress.update_caught_up(leader_end_offset=12, durability=MEMORY, now_ms=9900)

    assert progress.caught_up_ms == 9000


def test_a_durable_end_offset_never_exceeds_the_log_end_offset() -> None:
    progress = FollowerProgress(is_in_sync=True, leader_end_offset=0, now_ms=0)

    progress.reported(
        FollowerReport(2, 12, 5, 9),
        leader_end_offset=5,
        durability=Durability.FSYNC,
        now_ms=0,
    )

    assert progress.position(Durability.FSYNC) == 5


@pytest.mark.invariant("I42")
def test_a_new_process_of_a_follower_begins_with_its_own_report() -> None:
    progress = FollowerProgress(is_in_sync=True, leader_end_offset=0, now_ms=0)
    reported(progress, 10, leader_end=10, now_ms=100)
    restarted = FollowerReport(2, 13, 4, 3, is_whole=False)

    progress.reported(restarted, leader_end_offset=20, durability=MEMORY, now_ms=200)

    assert progress.broker_epoch == 13
    assert (progress.position(MEMORY), progress.position(Durability.FSYNC)) == (4, 3)
    assert progress.caught_up_ms == NEVER_MS
    assert not progress.is_whole
    progress.reported(
        FollowerReport(2, 13, 20, 3), leader_end_offset=30, durability=MEMORY, now_ms=300
    )
    assert progress.caught_up_ms == 200, "it has what the leader had at its first report"


def test_a_report_of_an_earlier_broker_epoch_is_ignored() -> None:
    progress = FollowerProgress(is_in_sync=True, leader_end_offset=0, now_ms=0)
    reported(progress, 5, leader_end=10, now_ms=0)

    progress.reported(
        FollowerReport(2, 11, 10, 10), leader_end_offset=10, durability=MEMORY, now_ms=1
    )

    assert progress.position(MEMORY) == 5
    assert progress.broker_epoch == 12
