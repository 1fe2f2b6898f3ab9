"""Who is in sync, who should be, and who holds back what is committed."""

import pytest

from tests.isr.leader_fixture import LAG_MAX_MS, LeaderFixture
from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import JOINING_HOLD_MS, RETRY_MS
from tidelog.isr.replica_set import BrokerStatus


def test_a_record_is_committed_when_everybody_in_sync_has_it() -> None:
    led = LeaderFixture()
    led.append(10)

    led.report(2, 8)
    assert led.high_watermark == 0

    led.report(3, 6)
    assert led.high_watermark == 6


def test_a_replica_that_is_not_in_sync_holds_nothing_back() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)

    led.report(2)

    assert led.high_watermark == 10


def test_under_fsync_followers_count_by_what_is_on_their_disks() -> None:
    led = LeaderFixture(durability=Durability.FSYNC)
    led.append(10)

    led.report(2, durable=4)
    led.report(3, durable=3)
    assert led.high_watermark == 3

    led.leader.follower_became_durable(3, 13, 10, now_ms=0)
    assert led.high_watermark == 4


def test_a_follower_is_not_heard_on_behalf_of_another_life() -> None:
    led = LeaderFixture(durability=Durability.FSYNC)
    led.append(10)
    led.report(2, durable=10)
    led.report(3, 5, epoch=20, durable=5)

    led.report(3, epoch=13, durable=10)
    led.leader.follower_became_durable(3, 13, 10, now_ms=0)

    assert led.high_watermark == 5


def test_a_broker_without_a_replica_is_not_heard() -> None:
    led = LeaderFixture()
    led.append(1)

    led.report(4)

    assert led.high_watermark == 0


def test_a_late_follower_is_to_leave_after_a_while() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)
    led.report(3, 9)

    assert led.next_change() is None
    assert led.leader.next_deadline_ms() == LAG_MAX_MS + 1
    led.wait(LAG_MAX_MS)
    assert led.next_change() is None

    led.wait(1)
    assert led.proposed() == [1, 2]


@pytest.mark.invariant("I43")
def test_a_silent_follower_that_has_everything_stays() -> None:
    led = LeaderFixture()
    led.append_everywhere(10)

    led.wait(10 * LAG_MAX_MS)

    assert led.proposed() is None
    assert led.leader.next_deadline_ms() is None


@pytest.mark.invariant("I43")
def test_a_follower_that_always_trails_by_a_little_stays() -> None:
    """I43: caught up is a point in time, not an offset."""
    led = LeaderFixture()
    for _ in range(100):
        led.append(10)
        led.wait(1000)
        led.report(2)
        led.report(3, led.log_end - 5)

        assert led.proposed() is None


@pytest.mark.invariant("I43")
def test_a_follower_that_falls_behind_more_and_more_leaves() -> None:
    led = LeaderFixture()
    fallen = 0
    for step in range(100):
        led.append(10)
        led.wait(1000)
        led.report(2)
        led.report(3, 5 * step)
        if led.proposed() == [1, 2]:
            fallen = led.now_ms
            break

    assert LAG_MAX_MS < fallen < 3 * LAG_MAX_MS


def test_who_had_to_leave_is_not_asked_back_before_it_has_caught_up() -> None:
    """With too few in sync nothing is committed, and so everybody has all that is."""
    led = LeaderFixture(minimum=3)
    led.report(2)
    led.report(3)
    led.append(10)
    led.report(2)
    assert led.next_change() is None
    led.wait(LAG_MAX_MS + 1)
    assert led.proposed() == [1, 2]
    led.agree(1, 2, minimum=3)

    led.report(3, 4)
    led.append(1)
    led.report(3, 9)
    assert led.next_change() is None

    led.wait(100)
    led.report(3, 10)
    assert led.proposed() == [1, 2, 3], "it has all that there was when it was heard of last"


@pytest.mark.invariant("I39")
def test_who_shall_leave_counts_until_the_cluster_has_agreed() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)
    led.wait(LAG_MAX_MS + 1)

    assert led.proposed() == [1, 2]
    assert led.high_watermark == 0

    led.agree(1, 2)
    assert led.high_watermark == 10


@pytest.mark.invariant("I39")
def test_who_was_asked_for_counts_from_the_moment_of_asking() -> None:
    """I39: the maximal ISR; the cluster may have agreed already (KIP-497)."""
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)

    assert led.proposed() == [1, 2, 3]

    led.wait(10 * LAG_MAX_MS)
    led.append(5)
    led.report(2)
    assert led.high_watermark == 10


def test_a_rejected_change_is_repeated_after_a_while_and_counts_no_more() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    change = led.propose()

    led.reject(change)
    led.brokers[3] = BrokerStatus(13, False)
    led.append(5)
    led.report(2)
    assert led.next_change() is None
    assert led.high_watermark == 15

    led.brokers[3] = BrokerStatus(13, True)
    led.report(3)
    assert led.next_change() is None
    assert led.leader.next_deadline_ms() == RETRY_MS
    led.wait(RETRY_MS)
    assert led.proposed() == [1, 2, 3]


def test_a_refusal_does_not_count_while_another_copy_may_be_carried_out() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    lost = led.propose()
    led.reject(lost, is_certain=False)
    led.wait(RETRY_MS)
    again = led.propose()

    led.reject(again)
    led.wait(10 * LAG_MAX_MS)
    led.append(5)
    led.report(2)

    assert led.high_watermark == 10
    led.agree(1, 2)
    assert led.high_watermark == 15


@pytest.mark.invariant("I39")
def test_a_lost_answer_about_somebody_who_is_gone_for_good_is_settled() -> None:
    """Else everybody would wait for ever for one that may have been let in."""
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    lost = led.propose()
    led.reject(lost, is_certain=False)
    led.brokers[3] = BrokerStatus(13, False)
    led.append(5)
    led.report(2)
    assert led.high_watermark == 10

    assert led.leader.next_deadline_ms() == RETRY_MS
    led.wait(RETRY_MS)
    settling = led.next_change()

    assert settling is not None
    assert settling.in_sync_replicas == ((1, 11), (2, 12))
    assert settling.partition_epoch == lost.partition_epoch
    assert led.high_watermark == 10, "it may have been let in"
    led.agree(1, 2)
    led.leader.on_isr_change_committed(settling)
    assert led.high_watermark == 15
    assert led.next_change() is None


def test_what_settles_is_repeated_until_it_has_an_answer() -> None:
    led = LeaderFixture(1, 2)
    led.report(3)
    lost = led.propose()
    led.reject(lost, is_certain=False)
    led.brokers[3] = BrokerStatus(13, False)

    for is_certain in (False, True):
        led.wait(RETRY_MS)
        settling = led.propose()
        led.reject(settling, is_certain=is_certain)

    led.append(5)
    led.report(2)
    assert led.high_watermark == 0, "no copy of the first request has been ruled out"
    led.wait(RETRY_MS)
    assert led.proposed() == [1, 2]


def test_nothing_is_settled_that_was_refused_for_certain() -> None:
    led = LeaderFixture(1, 2)
    led.report(3)
    change = led.propose()

    led.reject(change)
    led.brokers[3] = BrokerStatus(13, False)
    led.wait(RETRY_MS)

    assert led.next_change() is None


def test_a_change_to_the_current_isr_ends_when_it_is_committed() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    change = led.propose()

    led.agree(1, 2, 3)
    led.leader.on_isr_change_committed(change)
    led.append(5)
    led.report(2)

    assert led.high_watermark == 10


def test_only_one_change_is_under_way() -> None:
    led = LeaderFixture(1)
    led.report(2)
    assert led.proposed() == [1, 2]

    led.report(3)

    assert led.next_change() is None


@pytest.mark.invariant("I41")
def test_a_follower_joins_only_with_all_that_is_committed() -> None:
    led = LeaderFixture(1, 2)
    led.report(3)
    led.append(10)
    led.wait(2 * JOINING_HOLD_MS)
    led.report(2)
    assert led.high_watermark == 10

    led.report(3, 9)
    assert led.next_change() is None, "it is not late, and lacks something"

    led.report(3, 10)
    assert led.proposed() == [1, 2, 3]


@pytest.mark.invariant("I41", "I56")
def test_a_follower_joins_only_with_all_that_was_there_when_the_epoch_began() -> None:
    """I41: earlier leaders may have acknowledged it, though it is not known here."""
    led = LeaderFixture(1, 2, 3, log_end=10)
    led.agree(1, 2)
    led.report(3, 9)
    assert led.high_watermark == 0
    assert led.next_change() is None, "it is not late, for it was in sync when the epoch began"

    led.report(3, 10)
    assert led.proposed() == [1, 2, 3]


def test_under_fsync_a_follower_joins_with_what_is_on_its_disk() -> None:
    led = LeaderFixture(1, 2, log_end=10, durability=Durability.FSYNC)
    led.report(3, 10, durable=9)
    assert led.next_change() is None

    led.leader.follower_became_durable(3, 13, 10, now_ms=0)
    assert led.proposed() == [1, 2, 3]


@pytest.mark.invariant("I42")
def test_a_change_names_the_processes_whose_reports_were_seen() -> None:
    """I42, KIP-903: what a broker had before it was started anew says nothing."""
    led = LeaderFixture(1, 2)
    led.report(3, epoch=13)

    change = led.propose()
    assert change.in_sync_replicas == ((1, 11), (2, 12), (3, 13))

    led.agree(1, 2)
    led.brokers[3] = BrokerStatus(20, True)
    assert led.next_change() is None


@pytest.mark.invariant("I42")
def test_a_broker_that_is_fenced_or_stopping_does_not_join() -> None:
    led = LeaderFixture(1, 2)
    led.brokers[3] = BrokerStatus(13, False)

    led.report(3)

    assert led.next_change() is None


@pytest.mark.invariant("I40")
def test_who_is_about_to_join_holds_back_what_is_committed() -> None:
    """I40: else it might always be a moment behind."""
    led = LeaderFixture(1, 2)
    led.report(3, 0)
    led.agree(1, 2)
    led.append(10)
    led.report(2)
    assert led.high_watermark == 0

    led.report(3, 5)
    assert led.high_watermark == 5
    assert led.proposed() == [1, 2, 3]


@pytest.mark.invariant("I40")
def test_who_does_not_come_any_more_holds_nothing_back_for_long() -> None:
    led = LeaderFixture(1, minimum=1)
    led.report(2)
    assert led.proposed() == [1, 2]
    led.report(3)
    led.append(10)
    led.report(2)
    assert led.high_watermark == 0

    assert led.next_change() is None
    deadline_ms = led.leader.next_deadline_ms()
    assert deadline_ms == JOINING_HOLD_MS + 1
    led.wait(deadline_ms)
    assert led.next_change() is None

    assert led.high_watermark == 10


def test_a_broker_that_was_started_anew_has_to_catch_up_first() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(3)
    led.agree(1, 2)
    led.brokers[3] = BrokerStatus(20, True)

    led.report(3, 2, epoch=20)
    led.append(10)
    led.report(2)

    assert led.high_watermark == 20


def test_a_replica_that_was_removed_is_forgotten() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)
    followers = led.leader.replicas
    assert followers.assigned_replicas == (1, 2, 3)

    led.leader.replicas_changed(
        type(followers)((1, 2), (1, 2), followers.partition_epoch + 1, 2), now_ms=0
    )

    assert led.high_watermark == 10
    led.leader.follower_reported(FollowerReport(3, 13, 10, 10), now_ms=0)
    assert led.next_change() is None


def test_a_follower_that_is_not_whole_is_to_leave_at_once() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)

    led.report(3, is_whole=False)

    assert led.proposed() == [1, 2]
    assert led.high_watermark == 10, "it counts until the cluster has agreed; it has all"


def test_a_follower_that_is_not_whole_does_not_join_nor_hold_anything_back() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(2)

    led.report(3, is_whole=False)
    led.append(1)
    led.report(2)

    assert led.next_change() is None
    assert led.high_watermark == 11


def test_a_follower_that_is_whole_again_joins() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(2)
    led.report(3, is_whole=False)
    assert led.next_change() is None

    led.report(3)

    assert led.proposed() == [1, 2, 3]


def test_a_follower_that_is_not_whole_stays_so_while_it_says_only_what_is_on_its_disk() -> None:
    led = LeaderFixture(1, 2, durability=Durability.FSYNC)
    led.append(10)
    led.report(2, durable=10)
    led.report(3, durable=5, is_whole=False)

    led.leader.follower_became_durable(3, 13, 10, now_ms=0)

    assert led.next_change() is None
