"""Tests of one partition and of those who wait at it."""

import errno
from typing import final

from broker.partition import Partition
from tests.broker.logs import TOPIC_ID, append, config_of, flush, open_partition_log
from tests.simulation.faulty_disk import FaultyDisk
from wire.errors import BrokerError, CorruptRecordError, LogOfflineError
from wire.produce import AckLevel, Acks


@final
class Told:
    """Waits for acknowledgements and for data, and writes down what it was told."""

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


def new_partition(
    durability: str = "fsync", events: list[tuple[str, dict[str, object]]] | None = None
) -> Partition:
    config = config_of(durability)
    log = open_partition_log(FaultyDisk(), config)

    def probe(event: str, **fields: object) -> None:
        if events is not None:
            events.append((event, fields))

    return Partition(TOPIC_ID, 0, log, config, probe)


def test_acknowledgements_come_in_the_order_of_offsets_up_to_what_is_durable() -> None:
    partition, told = new_partition(), Told()
    for index in (0, 1, 2):
        end = append(partition.log, b"a")
        partition.wait_for_ack(Acks.ALL if index % 2 else Acks.LEADER, end, told, index)
    flush(partition.log)
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"b"), told, 3)

    partition.progressed()

    assert sorted(told.acknowledgements) == [
        (0, AckLevel.LEADER_DURABLE),
        (1, AckLevel.DURABLE),
        (2, AckLevel.LEADER_DURABLE),
    ]
    assert partition.waiter_count == 1


def test_fetches_are_woken_when_the_high_watermark_moves_and_only_then() -> None:
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


def test_when_the_disk_fails_everybody_is_told_once() -> None:
    events: list[tuple[str, dict[str, object]]] = []
    partition, told = new_partition(events=events), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, 0)
    partition.wait_for_ack(Acks.LEADER, append(partition.log, b"b"), told, 1)
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


def test_damage_that_a_reader_finds_is_told_once() -> None:
    events: list[tuple[str, dict[str, object]]] = []
    partition = new_partition(events=events)

    for _ in range(2):
        partition.damage_found(CorruptRecordError("damaged", offset=3, next_offset=5))

    assert [fields["status"] for _, fields in events] == ["damaged"]


def test_a_change_of_durability_acknowledges_what_need_not_wait_any_more() -> None:
    partition, told = new_partition("fsync"), Told()
    partition.wait_for_ack(Acks.ALL, append(partition.log, b"a"), told, 0)
    partition.wait_for_data(told)

    partition.reconfigure(config_of("replicated"))

    assert told.acknowledgements == [(0, AckLevel.REPLICATED)]
    assert told.wake_count == 1
    assert partition.high_watermark == 1
