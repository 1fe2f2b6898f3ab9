"""Tests of one partition and its waiters."""

import errno
from typing import final

import pytest

from tests.broker.logs import TOPIC_ID, append, config_of, flush, open_partition_log
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.partitions.partition import Partition
from tidelog.isr.follower_progress import FollowerReport
from tidelog.isr.followers import Followers
from tidelog.isr.replica_set import BrokerStatus, BrokerView, ReplicaSet
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    DiskFullError,
    LeaderNotAvailableError,
    LogOfflineError,
    NotEnoughReplicasAfterAppendError,
    NotLeaderError,
)
from tidelog.wire.messages.produce import AckLevel, Acks


@final
class Told:
    """A waiter for acknowledgements and data that records its calls."""

    def __init__(self) -> None:
        self.acknowledgements: list[tuple[int, AckLevel]] = []
        self.failures: list[tuple[int, BrokerError]] = []
        self.wake_count = 0

    def acknowledged(self, index: int, level: AckLevel) -> None:
        self.acknowledgements.append((index, level))

    def failed(self, index: int, error: BrokerError) -> None:
        self.failures.append((index, error))

    def wake(self) -> None:
        self.wake_count += 1


def unheard(event: str, **fields: object) -> None:
    """Ignore an event."""


def new_partition(
    durability: str = "fsync", events: list[tuple[str, dict[str, object]]] | None = None
) -> Partition:
    config = config_of(durability)
    log = open_partition_log(FaultyDisk(), config)

    def probe(event: str, **fields: object) -> None:
        if events is not None:
            events.append((event, fields))

    partition = Partition(TOPIC_ID, 0, log, topic="orders", config=config, probe=probe)
    partition.lead(3)
    return partition


def test_acknowledgements_come_in_offset_order_up_to_the_durable_end_offset() -> None:
    partition, told = new_partition(), Told()
    for index in (0, 1, 2):
        end = append(partition.log, b"a")
        partition.wait_for_ack(Acks.ALL if index % 2 else Acks.LEADER, end, told, index=index)
    flush(partition.log)
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"b"), told, index=3)

    partition.progressed()

    assert sorted(told.acknowledgements) == [
        (0, AckLevel.LEADER_DURABLE),
        (1, AckLevel.DURABLE),
        (2, AckLevel.LEADER_DURABLE),
    ]
    assert partition.waiter_count == 1


def test_fetches_are_woken_when_the_high_watermark_advances_and_only_then() -> None:
    partition, told = new_partition(), Told()
    partition.wait_for_data(told)
    append(partition.log, b"a")
    partition.progressed()
    assert told.wake_count == 0

    flush(partition.log)
    partition.progressed()
    partition.progressed()

    assert told.wake_count == 1
    assert partition.waiter_count == 0


def test_a_fetch_that_stops_waiting_is_not_woken() -> None:
    partition, told = new_partition("replicated"), Told()
    partition.wait_for_data(told)
    partition.stop_waiting(told)
    partition.stop_waiting(told)
    append(partition.log, b"a")

    partition.progressed()

    assert told.wake_count == 0


def test_a_fetch_may_wait_again_while_it_is_woken() -> None:
    partition = new_partition("replicated")

    class Insatiable:
        wake_count = 0

        def wake(self) -> None:
            self.wake_count += 1
            partition.wait_for_data(self)

    waiter = Insatiable()
    partition.wait_for_data(waiter)
    for _ in range(3):
        append(partition.log, b"a")
        partition.progressed()

    assert waiter.wake_count == 3


def test_a_failed_disk_fails_every_waiter_once() -> None:
    events: list[tuple[str, dict[str, object]]] = []
    partition, told = new_partition(events=events), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)
    partition.wait_for_ack(Acks.LEADER, append(partition.log, b"b"), told, index=1)
    partition.wait_for_data(told)

    for _ in range(2):
        error = partition.reading_failed(OSError(errno.EIO, "Input/output error"))
        assert isinstance(error, LogOfflineError)

    assert sorted(index for index, _ in told.failures) == [0, 1]
    assert all(isinstance(error, LogOfflineError) for _, error in told.failures)
    assert told.wake_count == 1
    assert partition.waiter_count == 0
    assert [(name, fields["status"]) for name, fields in events] == [
        ("log_status_changed", "offline")
    ]


def test_damage_found_by_a_reader_is_reported_once() -> None:
    events: list[tuple[str, dict[str, object]]] = []
    partition = new_partition(events=events)

    for _ in range(2):
        partition.damage_found(CorruptRecordError("damaged", offset=3, next_offset=5))

    assert [fields["status"] for _, fields in events] == ["damaged"]


def test_lowered_durability_acknowledges_waiting_records() -> None:
    partition, told = new_partition("fsync"), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)
    partition.wait_for_data(told)

    partition.reconfigure(config_of("replicated"))

    assert told.acknowledgements == [(0, AckLevel.REPLICATED)]
    assert told.wake_count == 1
    assert partition.high_watermark == 1


def test_a_leaderless_replica_keeps_its_high_watermark() -> None:
    log = open_partition_log(FaultyDisk(), config_of("fsync"))
    partition, told = (
        Partition(TOPIC_ID, 0, log, topic="orders", config=config_of("fsync"), probe=unheard),
        Told(),
    )
    partition.wait_for_data(told)
    append(log, b"a")
    flush(log)

    partition.progressed()

    assert partition.leader is None
    assert partition.high_watermark == 0
    assert told.wake_count == 0


def test_a_new_leader_starts_with_the_offsets_of_its_log() -> None:
    log = open_partition_log(FaultyDisk(), config_of("fsync"))
    append(log, b"a")
    flush(log)
    append(log, b"not durable yet")
    partition = Partition(
        TOPIC_ID, 0, log, topic="orders", config=config_of("fsync"), probe=unheard
    )

    partition.lead(5)

    assert partition.leader is not None
    assert partition.leader.leader_epoch == 5
    assert partition.high_watermark == 1


@pytest.mark.invariant("I46")
def test_a_new_leader_elsewhere_fails_waiters_and_keeps_the_high_watermark() -> None:
    partition, told = new_partition(), Told()
    append(partition.log, b"a")
    flush(partition.log)
    partition.progressed()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"b"), told, index=0)
    partition.wait_for_data(told)

    partition.resign(NotLeaderError("broker 2 leads the partition now"))
    partition.resign(NotLeaderError("once more"))

    assert [(index, str(error)) for index, error in told.failures] == [
        (0, "broker 2 leads the partition now")
    ]
    assert told.wake_count == 1
    assert partition.leader is None
    assert partition.high_watermark == 1
    flush(partition.log)
    partition.progressed()
    assert told.acknowledgements == []
    assert partition.high_watermark == 1


def test_a_later_leader_epoch_acknowledges_nothing_of_the_earlier_one() -> None:
    partition, told = new_partition(), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)

    partition.lead(4)
    flush(partition.log)
    partition.progressed()

    assert told.acknowledgements == []
    assert [type(error) for _, error in told.failures] == [NotLeaderError]
    assert partition.leader is not None
    assert partition.leader.leader_epoch == 4
    assert partition.high_watermark == 1


def test_changed_settings_hold_for_the_next_leadership() -> None:
    log = open_partition_log(FaultyDisk(), config_of("fsync"))
    partition = Partition(
        TOPIC_ID, 0, log, topic="orders", config=config_of("fsync"), probe=unheard
    )

    partition.reconfigure(config_of("replicated"))
    partition.lead(0)

    append(log, b"a")
    partition.progressed()
    assert partition.high_watermark == 1


def no_facts(node_id: int) -> BrokerStatus | None:
    del node_id
    return None


class Watching:
    """Records changes of a partition."""

    def __init__(self) -> None:
        self.ends: list[tuple[int, int]] = []

    def changed(self, partition: Partition) -> None:
        self.ends.append((partition.log.log_end_offset, partition.high_watermark))


def test_a_follower_keeps_the_high_watermark_of_its_leadership() -> None:
    partition = new_partition()
    append(partition.log, b"a")
    flush(partition.log)
    partition.progressed()

    partition.follow(2, 4)
    assert partition.leader is None
    follower = partition.follower
    assert follower is not None
    assert (follower.leader_id, partition.high_watermark) == (2, 1)
    append(partition.log, b"b")

    followers = Followers(
        ReplicaSet((1, 2), (1, 2), 0, 2), BrokerView(1, no_facts), epoch_start_offset=2, now_ms=0
    )
    partition.lead(5, followers)

    assert partition.follower is None
    assert partition.high_watermark == 1, "the other replica may lack those records"


@pytest.mark.invariant("I36")
def test_waiting_acks_all_requests_fail_when_the_isr_is_too_small() -> None:
    """I36: appended, and perhaps kept; a retry tells."""
    partition, told = new_partition(), Told()
    three = ReplicaSet((1, 2, 3), (1, 2), 0, 2)
    view = BrokerView(1, no_facts)
    partition.lead(5, Followers(three, view, epoch_start_offset=0, now_ms=0))
    append(partition.log, b"a")
    flush(partition.log)
    partition.progressed()
    partition.wait_for_ack(Acks.ALL, 1, told, index=0)
    partition.wait_for_ack(Acks.LEADER, append(partition.log, b"b"), told, index=1)

    partition.replicas_changed(ReplicaSet((1, 2, 3), (1, 2), 1, 2), now_ms=0)
    assert told.failures == []
    partition.replicas_changed(ReplicaSet((1, 2, 3), (1,), 2, 2), now_ms=0)

    ((index, error),) = told.failures
    assert index == 0
    assert isinstance(error, NotEnoughReplicasAfterAppendError)
    assert str(error) == (
        "1 of 3 replicas are in sync, and 2 must be (min_insync_replicas), since these records"
        " were appended; they may be kept or not"
    )
    flush(partition.log)
    partition.progressed()
    assert told.acknowledgements == [(1, AckLevel.LEADER_DURABLE)]
    assert partition.high_watermark == 0


def test_records_on_all_replicas_are_acknowledged_though_the_isr_is_too_small() -> None:
    partition, told = new_partition(), Told()
    alone = ReplicaSet((1, 2, 3), (1,), 0, 1)
    followers = Followers(alone, BrokerView(1, no_facts), epoch_start_offset=0, now_ms=0)
    partition.lead(5, followers)
    append(partition.log, b"a")
    flush(partition.log)
    partition.wait_for_ack(Acks.ALL, 1, told, index=0)

    partition.progressed()
    partition.replicas_changed(ReplicaSet((1, 2, 3), (1,), 1, 2), now_ms=0)

    assert told.acknowledgements == [(0, AckLevel.DURABLE)]
    assert told.failures == []


def led_with(*in_sync: int) -> Partition:
    partition = new_partition()
    replicas = ReplicaSet((1, 2, 3), in_sync, 0, 2)
    view = BrokerView(1, no_facts)
    partition.lead(5, Followers(replicas, view, epoch_start_offset=0, now_ms=0))
    return partition


def test_fetches_are_woken_when_followers_report_their_records() -> None:
    partition, told = led_with(1, 2), Told()
    append(partition.log, b"a")
    flush(partition.log)
    partition.progressed()
    partition.wait_for_data(told)
    assert partition.leader is not None

    partition.leader.follower_reported(FollowerReport(2, 0, 1, 1), now_ms=0)
    partition.progressed()

    assert (partition.high_watermark, told.wake_count) == (1, 1)


DAMAGE = CorruptRecordError("damaged", offset=0, next_offset=1)


@pytest.mark.parametrize("error", [DAMAGE, LogOfflineError("offline"), DiskFullError("full")])
def test_records_damaged_at_the_leader_are_retriable_with_other_isr_members(
    error: BrokerError,
) -> None:
    assert isinstance(led_with(1, 2).passing(error), LeaderNotAvailableError)
    assert led_with(1).passing(error) is error, "no other replica has more"


def test_records_damaged_at_a_follower_are_referred_to_the_leader() -> None:
    partition = led_with(1, 2)
    partition.follow(2, 6)

    assert isinstance(partition.passing(DAMAGE), NotLeaderError)


def test_an_error_common_to_all_replicas_is_returned_unchanged() -> None:
    error = NotLeaderError("another broker leads")

    assert led_with(1, 2).passing(error) is error


def test_waiters_fail_on_a_stalled_disk_if_other_replicas_could_lead() -> None:
    partition, told = led_with(1, 2), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)

    partition.stalled()

    assert [type(error) for _, error in told.failures] == [LeaderNotAvailableError]
    assert not partition.is_whole
    with pytest.raises(LeaderNotAvailableError, match="does not answer"):
        partition.require_disk()


def test_a_sole_leader_goes_on_with_a_stalled_disk() -> None:
    partition, told = led_with(1), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)

    partition.stalled()

    assert told.failures == []
    partition.require_disk()


def test_watchers_are_called_for_every_change() -> None:
    partition, watching = new_partition(), Watching()
    partition.watchers[watching] = None

    append(partition.log, b"a")
    partition.progressed()
    flush(partition.log)
    partition.progressed()
    partition.follow(2, 4)
    partition.progressed()

    assert watching.ends == [(1, 0), (1, 1), (1, 1), (1, 1)]


def test_the_role_does_not_change_while_the_log_is_held() -> None:
    partition = new_partition()
    partition.follow(2, 4)
    partition.is_held = True

    with pytest.raises(AssertionError, match="held for a repair"):
        partition.lead(5)


def test_a_closed_replica_has_no_role_and_no_waiters_and_reports_no_status() -> None:
    events: list[tuple[str, dict[str, object]]] = []
    gone = NotLeaderError("this broker no longer has a replica of the partition")
    for is_leader in (True, False):
        partition, told = new_partition(events=events), Told()
        partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, index=0)
        if not is_leader:
            partition.follow(2, 4)
        partition.wait_for_data(told)

        partition.close(gone)
        partition.note_status("a task that was about to use the log got an error")

        assert (partition.leader, partition.follower) == (None, None)
        assert told.failures[0][1] is gone or not is_leader
        assert (len(told.failures), told.wake_count) == (1, 1)
        assert events == []
