"""ISR changes, and the followers that the high watermark waits for."""

import pytest
from msgspec.structs import replace

from tests.isr.leader_fixture import LAG_MAX_MS, LeaderFixture
from tests.paths import ROOT
from tidelog.isr.durability import Durability
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import JOINING_HOLD_MS, RETRY_MS
from tidelog.isr.replica_set import BrokerStatus


def test_a_record_is_committed_when_all_in_sync_replicas_have_it() -> None:
    led = LeaderFixture()
    led.append(10)

    led.report(2, 8)
    assert led.high_watermark == 0

    led.report(3, 6)
    assert led.high_watermark == 6


def test_the_high_watermark_ignores_out_of_sync_replicas() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)

    led.report(2)

    assert led.high_watermark == 10


def test_under_fsync_the_high_watermark_uses_durable_end_offsets() -> None:
    led = LeaderFixture(durability=Durability.FSYNC)
    led.append(10)

    led.report(2, durable=4)
    led.report(3, durable=3)
    assert led.high_watermark == 3

    led.leader.follower_became_durable(3, 13, 10, now_ms=0)
    assert led.high_watermark == 4


def test_the_durable_end_of_a_broker_without_a_replica_is_ignored() -> None:
    led = LeaderFixture(durability=Durability.FSYNC)
    led.append(10)

    led.leader.follower_became_durable(4, 14, 10, now_ms=0)

    assert led.high_watermark == 0


def test_a_report_of_another_broker_epoch_does_not_count() -> None:
    led = LeaderFixture(durability=Durability.FSYNC)
    led.append(10)
    led.report(2, durable=10)
    led.report(3, 5, epoch=20, durable=5)

    led.report(3, epoch=13, durable=10)
    led.leader.follower_became_durable(3, 13, 10, now_ms=0)

    assert led.high_watermark == 5


@pytest.mark.parametrize("epoch", [13, 21])
def test_the_durable_end_of_another_process_does_not_count(epoch: int) -> None:
    led = LeaderFixture(durability=Durability.FSYNC)
    led.append(10)
    led.report(2, durable=10)
    led.report(3, epoch=20, durable=4)

    led.leader.follower_became_durable(3, epoch, 10, now_ms=0)
    assert led.high_watermark == 4

    led.leader.follower_became_durable(3, 20, 9, now_ms=0)
    assert led.high_watermark == 9


def test_a_follower_begins_to_lag_with_the_first_record_that_it_lacks() -> None:
    led = LeaderFixture()
    led.append_everywhere(10)
    led.wait(7)
    led.append(1)

    assert led.next_change() is None

    assert led.leader.next_deadline_ms() == 7 + LAG_MAX_MS + 1


def test_a_report_of_a_broker_without_a_replica_is_ignored() -> None:
    led = LeaderFixture()
    led.append(1)

    led.report(4)

    assert led.high_watermark == 0


def test_a_lagging_follower_is_removed_from_the_isr() -> None:
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
def test_a_silent_follower_with_all_records_stays_in_the_isr() -> None:
    led = LeaderFixture()
    led.append_everywhere(10)

    led.wait(10 * LAG_MAX_MS)

    assert led.proposed() is None
    assert led.leader.next_deadline_ms() is None


@pytest.mark.invariant("I43")
def test_a_follower_that_was_never_behind_stays_in_the_isr_of_a_long_log() -> None:
    led = LeaderFixture()
    led.append(1_000_000)
    for node in (2, 3):
        led.report(node, led.log_end + 1 - 1)
    assert led.leader.next_deadline_ms() is None

    led.wait(10 * LAG_MAX_MS)

    assert led.proposed() is None


@pytest.mark.invariant("I43")
def test_a_follower_that_trails_by_a_moment_stays_in_the_isr() -> None:
    """I43: caught up is a point in time, not an offset."""
    led = LeaderFixture()
    for _ in range(100):
        led.append(10)
        led.wait(1000)
        led.report(2)
        led.report(3, led.log_end - 5)

        assert led.proposed() is None


@pytest.mark.invariant("I43")
def test_a_follower_with_growing_lag_is_removed_from_the_isr() -> None:
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


def test_a_removed_follower_rejoins_only_after_it_caught_up() -> None:
    """Below `min_insync_replicas` nothing is committed, so no replica lacks committed records."""
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
    assert led.proposed() == [1, 2, 3], "it had all records at its last report"


@pytest.mark.invariant("I39")
def test_the_high_watermark_waits_for_an_isr_shrink() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)
    led.wait(LAG_MAX_MS + 1)

    assert led.proposed() == [1, 2]
    assert led.high_watermark == 0

    led.agree(1, 2)
    assert led.high_watermark == 10


@pytest.mark.invariant("I39")
def test_a_proposed_replica_counts_towards_the_high_watermark_at_once() -> None:
    """I39: the maximal ISR; the cluster may have agreed already (KIP-497)."""
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)

    assert led.proposed() == [1, 2, 3]

    led.wait(10 * LAG_MAX_MS)
    led.append(5)
    led.report(2)
    assert led.high_watermark == 10


def test_a_rejected_isr_change_is_retried_and_no_longer_counts() -> None:
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


def test_a_rejection_does_not_count_while_another_copy_may_be_applied() -> None:
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
def test_a_lost_answer_about_a_dead_replica_is_settled_by_proposing_the_current_isr() -> None:
    """Otherwise the high watermark would wait for ever for a replica that may be in the ISR."""
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
    assert led.high_watermark == 10, "it may be in the ISR already"
    led.agree(1, 2)
    led.leader.on_isr_change_committed(settling)
    assert led.high_watermark == 15
    assert led.next_change() is None


def test_a_settling_isr_change_ends_when_it_is_committed_without_another_partition_epoch() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    led.reject(led.propose(), is_certain=False)
    led.brokers[3] = BrokerStatus(13, False)
    led.append(5)
    led.report(2)
    led.wait(RETRY_MS)
    settling = led.propose()
    assert led.high_watermark == 10

    led.leader.on_isr_change_committed(settling)

    assert led.next_change() is None
    led.append(1)
    led.report(2)
    assert led.high_watermark == 16


def test_the_settling_isr_change_is_retried_until_it_is_answered() -> None:
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
    assert led.high_watermark == 0, "a copy of the first request may still be applied"
    led.wait(RETRY_MS)
    assert led.proposed() == [1, 2]


def test_a_certain_rejection_needs_no_settling_isr_change() -> None:
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


@pytest.mark.invariant("I39")
def test_a_replica_set_of_the_same_partition_epoch_settles_no_isr_change() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    assert led.proposed() == [1, 2, 3]

    led.leader.replicas_changed(replace(led.leader.replicas, min_insync_replicas=1), now_ms=0)
    led.append(5)
    led.report(2)

    assert led.high_watermark == 10, "replica 3 may be in the ISR already"
    assert led.next_change() is None, "one change is in flight"


def test_the_order_of_replicas_in_the_isr_is_no_reason_for_a_change() -> None:
    led = LeaderFixture(3, 1, 2)
    led.append_everywhere(10)

    assert led.next_change() is None


def test_no_isr_is_proposed_with_a_replica_of_an_unknown_process() -> None:
    """The metadata is about to change: the broker of the replica was unregistered."""
    led = LeaderFixture(1, 2)
    del led.brokers[2]
    led.report(3)
    assert led.next_change() is None

    led.report(2)
    assert led.proposed() == [1, 2, 3], "its process has reported"


def test_a_rejected_isr_change_is_retried_at_once_after_another_partition_epoch() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    led.reject(led.propose())
    assert led.next_change() is None

    led.agree(1, 2)

    assert led.proposed() == [1, 2, 3]


@pytest.mark.invariant("I40")
def test_a_replica_that_was_never_caught_up_does_not_delay_the_high_watermark() -> None:
    led = LeaderFixture(1, 2, log_end=10)

    led.report(3, 5)
    led.report(2)

    assert led.high_watermark == 10
    assert led.leader.next_deadline_ms() is None


def test_the_documented_times_of_isr_changes_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "replication.md").read_text(encoding="utf-8")

    assert f"for {JOINING_HOLD_MS / 1000:g} s after it was caught up" in " ".join(page.split())
    assert f"retries a rejected request after {RETRY_MS} ms" in " ".join(page.split())


def test_only_one_isr_change_is_in_flight() -> None:
    led = LeaderFixture(1)
    led.report(2)
    assert led.proposed() == [1, 2]

    led.report(3)

    assert led.next_change() is None


@pytest.mark.invariant("I41")
def test_a_follower_joins_the_isr_only_with_all_committed_records() -> None:
    led = LeaderFixture(1, 2)
    led.report(3)
    led.append(10)
    led.wait(2 * JOINING_HOLD_MS)
    led.report(2)
    assert led.high_watermark == 10

    led.report(3, 9)
    assert led.next_change() is None, "it does not lag, but lacks records"

    led.report(3, 10)
    assert led.proposed() == [1, 2, 3]


@pytest.mark.invariant("I41", "I56")
def test_a_follower_joins_the_isr_only_at_the_epoch_start_offset() -> None:
    """I41: earlier leaders may have acknowledged records above the high watermark of this one."""
    led = LeaderFixture(1, 2, 3, log_end=10)
    led.agree(1, 2)
    led.report(3, 9)
    assert led.high_watermark == 0
    assert led.next_change() is None, "it does not lag, because it was in sync at the epoch start"

    led.report(3, 10)
    assert led.proposed() == [1, 2, 3]


def test_under_fsync_a_follower_joins_the_isr_by_its_durable_end_offset() -> None:
    led = LeaderFixture(1, 2, log_end=10, durability=Durability.FSYNC)
    led.report(3, 10, durable=9)
    assert led.next_change() is None

    led.leader.follower_became_durable(3, 13, 10, now_ms=0)
    assert led.proposed() == [1, 2, 3]


@pytest.mark.invariant("I42")
def test_an_isr_change_names_the_broker_epochs_of_the_reports() -> None:
    """I42, KIP-903: the log of an earlier process of a broker does not count."""
    led = LeaderFixture(1, 2)
    led.report(3, epoch=13)

    change = led.propose()
    assert change.in_sync_replicas == ((1, 11), (2, 12), (3, 13))

    led.agree(1, 2)
    led.brokers[3] = BrokerStatus(20, True)
    assert led.next_change() is None


@pytest.mark.invariant("I42")
def test_a_fenced_or_stopping_broker_does_not_join_the_isr() -> None:
    led = LeaderFixture(1, 2)
    led.brokers[3] = BrokerStatus(13, False)

    led.report(3)

    assert led.next_change() is None


@pytest.mark.invariant("I40")
def test_the_high_watermark_waits_for_a_joining_follower() -> None:
    """I40: otherwise it might always be a moment behind."""
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
def test_the_high_watermark_stops_waiting_for_a_silent_joining_follower() -> None:
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


def test_a_replica_that_joined_the_isr_is_not_waited_for_as_a_joining_replica() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)
    assert led.proposed() == [1, 2, 3]

    led.agree(1, 2, 3)
    assert led.next_change() is None

    assert led.leader.next_deadline_ms() is None


def test_a_restarted_broker_must_catch_up_before_it_joins_the_isr() -> None:
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


def test_a_damaged_follower_is_removed_from_the_isr_at_once() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)

    led.report(3, is_whole=False)

    assert led.proposed() == [1, 2]
    assert led.high_watermark == 10, "it counts until the shrink is committed, and has all records"


def test_a_damaged_follower_neither_joins_the_isr_nor_delays_the_high_watermark() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(2)

    led.report(3, is_whole=False)
    led.append(1)
    led.report(2)

    assert led.next_change() is None
    assert led.high_watermark == 11


def test_a_repaired_follower_joins_the_isr() -> None:
    led = LeaderFixture(1, 2)
    led.append(10)
    led.report(2)
    led.report(3, is_whole=False)
    assert led.next_change() is None

    led.report(3)

    assert led.proposed() == [1, 2, 3]


def test_a_durable_report_does_not_clear_damage() -> None:
    led = LeaderFixture(1, 2, durability=Durability.FSYNC)
    led.append(10)
    led.report(2, durable=10)
    led.report(3, durable=5, is_whole=False)

    led.leader.follower_became_durable(3, 13, 10, now_ms=0)

    assert led.next_change() is None


def test_a_report_is_that_of_a_whole_replica_unless_it_says_otherwise() -> None:
    led = LeaderFixture(1, 2)

    led.leader.follower_reported(FollowerReport(3, 13, 0, 0), now_ms=0)

    assert led.proposed() == [1, 2, 3]


def test_a_change_of_replicas_keeps_the_report_of_a_follower_that_joined_the_isr() -> None:
    led = LeaderFixture(1, 2)
    led.append_everywhere(10)

    led.agree(1, 2, 3)

    assert led.leader.follower_end_offset(3) == 10


def test_changes_of_replicas_give_a_silent_follower_no_more_time() -> None:
    led = LeaderFixture()
    led.append(10)
    led.report(2)
    led.wait(LAG_MAX_MS)
    led.agree(1, 2, 3)

    led.wait(1)

    assert led.proposed() == [1, 2]


def test_the_end_of_a_follower_is_known_from_its_first_report() -> None:
    led = LeaderFixture()
    led.append(10)
    assert led.leader.follower_end_offset(3) is None

    led.report(3, 9)

    assert led.leader.follower_end_offset(3) == 9
    assert led.leader.follower_end_offset(4) is None


def test_all_replicas_are_in_sync_or_not() -> None:
    led = LeaderFixture(1, 2)
    assert not led.leader.is_all_in_sync

    led.agree(1, 2, 3)

    assert led.leader.is_all_in_sync
