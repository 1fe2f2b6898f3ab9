"""Record accumulator against a model of brokers, under faults."""

import random
from collections.abc import Callable
from typing import final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.client.model_broker import FAILURES, ModelBroker
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.clock import Timestamp
from tidelog.client.metrics.counters import ProducerCounters
from tidelog.client.producer.partition_batches import (
    DeliveryRules,
    PartitionBatches,
    ProducerIdentity,
)
from tidelog.client.producer.producer_batch import RECORD_OVERHEAD_BYTES
from tidelog.client.producer.producer_record import ManyRecords, ProducerRecord
from tidelog.client.producer.record_accumulator import AppendResult, Limits, RecordAccumulator
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import PRODUCED_COUNT_MAX
from tidelog.wire.errors import (
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidBatchError,
    RecordTooLargeError,
    UnexpectedServerError,
    UnknownPartitionError,
    UnknownTopicError,
)

TOPIC = "orders"
RECORDS_PER_BATCH = 200 // (RECORD_OVERHEAD_BYTES + len(b"000000"))


@final
class Bench:
    """An accumulator, a model of brokers, and the clock of the test."""

    def __init__(
        self,
        *,
        partition_count: int = 2,
        is_idempotent: bool = True,
        batch_size: int = 200,
        buffer_memory: int = 2_000,
        linger: float = 0.0,
    ) -> None:
        entropy = random.Random(7)
        rules = DeliveryRules(
            codec=Codec.NONE,
            is_idempotent=is_idempotent,
            in_flight_max=5,
            backoff=Backoff(0.1, 1.0, entropy),
        )
        limits = Limits(batch_size, buffer_memory, linger, delivery_timeout=60.0)
        self.accumulator = RecordAccumulator(limits, rules, entropy, counters=ProducerCounters())
        self.broker = ModelBroker(self.accumulator, partition_count)
        self.now = 1000.0
        self.is_reachable = True
        self.appended: list[tuple[bytes, AppendResult]] = []
        self._next_epoch = 0
        self._next_value = 0

    @property
    def at(self) -> Timestamp:
        return Timestamp(self.now, int(self.now * 1000))

    def append(self, key: bytes | None = None, partition: int | None = None) -> bool:
        """Append the next record; its value is its number."""
        value = b"%06d" % self._next_value
        appended = self.accumulator.append(ProducerRecord(TOPIC, value, key, partition), self.at)
        if appended is not None:
            self._next_value += 1
            self.appended.append((value, appended))
        return appended is not None

    def append_many(self, count: int) -> None:
        """Append records in one call, as many as fit."""
        values = [b"%06d" % (self._next_value + step) for step in range(count)]
        records = ManyRecords(values)
        while records.remaining_count:
            first = records.taken_count
            appended = self.accumulator.append_many(TOPIC, None, records, now=self.at)
            if appended is None:
                break
            for step in range(appended.count):
                place = appended.place + step
                one = AppendResult(appended.queue, appended.batch, place, 1)
                self.appended.append((values[first + step], one))
        self._next_value += records.taken_count

    def node_of(self, queue: PartitionBatches) -> int | None:
        del queue
        return 1 if self.is_reachable else None

    def send(self, *, only_full: bool = False) -> None:
        """Submit the batches that are due, as the shell does."""
        while requests := self.accumulator.drain(self.now, self.node_of, only_full=only_full):
            for drained_batches in requests.values():
                self.broker.receive(drained_batches)

    def reply(self) -> None:
        """Deliver one reply, and send what it makes possible."""
        self.broker.reply(self.now)
        self.send()

    def turn_reachability(self) -> None:
        """Make the leaders unreachable, or reachable again."""
        self.is_reachable = not self.is_reachable
        self.accumulator.ready_partitions.leaders_changed()

    def grant_identity(self) -> None:
        """Answer the request for an identity, if there is one."""
        if self.accumulator.identity_to_renew() is not None:
            self._next_epoch += 1
            self.accumulator.set_identity(ProducerIdentity(1, self._next_epoch))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.accumulator.wake(self.at)

    def finish(self) -> None:
        """Settle everything, without further faults."""
        self.is_reachable = True
        self.accumulator.ready_partitions.leaders_changed()
        self.accumulator.close_all()
        for _ in range(300):
            self.grant_identity()
            self.send()
            while not self.broker.is_idle:
                self.broker.execute()
                self.broker.reply(self.now)
            if self.accumulator.unsettled_record_count == 0:
                return
            self.pass_time(1.6)
        raise AssertionError("some records are never settled")


def check_outcomes(bench: Bench, *, is_idempotent: bool) -> None:
    """Compare the outcomes at the producer with the logs."""
    logs = [partition.values for partition in bench.broker.partitions]
    for value, appended in bench.appended:
        log = logs[appended.queue.partition]
        (fate,) = appended.batch.fates(appended.place, appended.place + 1)
        if fate.failure is None and fate.offset is not None:
            assert log[fate.offset] == value
        elif fate.failure is None:
            assert value in log
        else:
            assert isinstance(fate.failure, HONEST_FAILURES), "nothing fails for the sake of others"
            assert may_be_in_the_log(fate.failure) or value not in log
    for log in logs:
        if is_idempotent:
            assert log == sorted(set(log)), "each record once, in the order of sending"
        else:
            first_seen = list(dict.fromkeys(log))
            assert first_seen == sorted(first_seen), "in the order of sending, repeats aside"
    assert bench.accumulator.buffered_bytes == 0
    assert bench.accumulator.unsettled_record_count == 0


HONEST_FAILURES = (
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidBatchError,
    RecordTooLargeError,
    UnexpectedServerError,
)
"""Accepted errors of a record: that of the model for this very record, a timeout, or a lost
connection."""


def may_be_in_the_log(failure: Exception | None) -> bool:
    """Return whether an error means that the record may be in the log."""
    told = [str(failure), *getattr(failure, "__notes__", [])]
    return any(
        "may or may not be in the log" in line or "may be in the log" in line for line in told
    )


STEPS = st.sampled_from(
    [("append", number) for number in range(4)]
    + [("fill", number) for number in (1, 2, 6)]
    + [("execute", number) for number in (1, 1, 2, 6)]
    + [("fail", number) for number in (*range(len(FAILURES)), *range(len(FAILURES)))]
    + [("reply", number) for number in (1, 1, 2, 6)]
    + [("time", number) for number in (1, 1, 2, 4, 60)]
    + [("late", number) for number in (1, 6)]
    + [("lose", 0), ("close", 0), ("reach", 0)]
)


def do_step(bench: Bench, step: str, number: int) -> None:
    """Do one step of a run, then what the shell does after every event."""
    broker = bench.broker
    repetitions = number if step in {"execute", "reply", "late"} else 1
    do: dict[str, Callable[[], object]] = {
        "append": lambda: bench.append(key=b"key-%d" % number if number else None),
        "fill": lambda: bench.append_many(number * RECORDS_PER_BATCH),
        "execute": broker.execute,
        "fail": lambda: broker.execute(FAILURES[number]),
        "reply": bench.reply,
        "time": lambda: bench.pass_time(number),
        "lose": lambda: broker.lose_connection(bench.now),
        "late": broker.let_late_arrive,
        "close": bench.accumulator.close_all,
        "reach": bench.turn_reachability,
    }
    for _ in range(repetitions):
        do[step]()
    bench.grant_identity()
    bench.send()


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "not idempotent"])
@settings(max_examples=200)
@given(steps=st.lists(STEPS, min_size=30, max_size=100))
def test_every_record_gets_its_true_outcome_in_order_under_faults(
    is_idempotent: bool, steps: list[tuple[str, int]]
) -> None:
    bench = Bench(is_idempotent=is_idempotent)
    bench.accumulator.set_topic(TOPIC, [True, True], bench.at)

    for step, number in steps:
        if not is_idempotent:
            bench.broker.drop_late()  # Without idempotence these would be appended.
        do_step(bench, step, number)
    bench.finish()

    check_outcomes(bench, is_idempotent=is_idempotent)


def known_topic(bench: Bench, partition_count: int = 2) -> RecordAccumulator:
    bench.accumulator.set_topic(TOPIC, [True] * partition_count, bench.at)
    bench.accumulator.set_identity(ProducerIdentity(1, 0))
    return bench.accumulator


def test_a_full_buffer_rejects_records_until_an_acknowledgement() -> None:
    bench = Bench(buffer_memory=400)
    known_topic(bench)
    while bench.append():
        pass
    assert bench.accumulator.free_bytes < RECORD_OVERHEAD_BYTES + 6

    bench.finish()

    assert bench.accumulator.buffered_bytes == 0
    assert bench.append()


def test_a_closed_batch_frees_its_unused_reservation() -> None:
    bench = Bench(batch_size=1_000, buffer_memory=4_000)
    known_topic(bench)
    bench.append()
    assert bench.accumulator.buffered_bytes > 500, "room for more is reserved"

    bench.accumulator.close_all()

    assert bench.accumulator.buffered_bytes == RECORD_OVERHEAD_BYTES + 6


def test_batches_that_linger_are_sent_when_the_buffer_is_full() -> None:
    bench = Bench(buffer_memory=400, linger=10.0)
    known_topic(bench)
    bench.append(partition=0)
    bench.send()
    assert bench.broker.is_idle

    while bench.append(partition=1):
        pass
    bench.send()

    assert not bench.appended[0][1].queue.has_open


def test_a_batch_lingers_until_it_is_due() -> None:
    bench = Bench(linger=0.5)
    known_topic(bench)
    bench.append()
    bench.send()
    assert bench.broker.is_idle
    assert bench.accumulator.next_wake <= bench.now + 0.5

    bench.pass_time(0.5)
    bench.send()

    assert not bench.broker.is_idle


def test_records_without_a_key_fill_one_batch_and_then_go_to_the_next_partition() -> None:
    bench = Bench()
    known_topic(bench)

    for _ in range(3 * RECORDS_PER_BATCH):
        bench.append()

    partitions = [appended.queue.partition for _, appended in bench.appended]
    first, second = partitions[0], partitions[RECORDS_PER_BATCH]
    assert first != second
    assert partitions == (
        [first] * RECORDS_PER_BATCH + [second] * RECORDS_PER_BATCH + [first] * RECORDS_PER_BATCH
    )


def test_records_of_a_key_stay_together() -> None:
    bench = Bench()
    known_topic(bench)

    for number in range(30):
        bench.append(key=b"key-%d" % (number % 3))

    homes = {
        number % 3: {appended.queue.partition for _, appended in bench.appended[number % 3 :: 3]}
        for number in range(3)
    }
    assert all(len(partitions) == 1 for partitions in homes.values())


def test_an_unknown_partition_is_refused() -> None:
    bench = Bench()
    known_topic(bench)

    with pytest.raises(UnknownPartitionError, match="2 partitions, 0 to 1; there is no 2"):
        bench.append(partition=2)


def test_records_for_an_unknown_topic_wait_and_are_routed_in_order() -> None:
    bench = Bench(partition_count=1)
    records = [ProducerRecord(TOPIC, b"%d" % number) for number in range(9)]
    for record in records:
        assert bench.accumulator.append_unrouted(record, bench.at)
    waiting_bytes = bench.accumulator.buffered_bytes
    assert waiting_bytes == sum(record.size for record in records)

    bench.accumulator.set_topic(TOPIC, [True], bench.at)
    bench.finish()

    assert bench.broker.partitions[0].values == [record.value for record in records]
    assert bench.accumulator.buffered_bytes == 0


def test_unrouted_records_are_routed_with_a_full_buffer() -> None:
    bench = Bench(partition_count=1)
    records = [ProducerRecord(TOPIC, b"%d" % number) for number in range(3)]
    for record in records:
        assert bench.accumulator.append_unrouted(record, bench.at)
    overdraft = bench.accumulator.free_bytes + 1000
    bench.accumulator.buffered_bytes += overdraft

    bench.accumulator.set_topic(TOPIC, [True], bench.at)

    bench.accumulator.buffered_bytes -= overdraft
    bench.finish()
    assert bench.broker.partitions[0].values == [record.value for record in records]
    assert bench.accumulator.buffered_bytes == 0


def test_records_for_an_unknown_topic_fail_in_time() -> None:
    bench = Bench()
    bench.accumulator.append_unrouted(ProducerRecord(TOPIC, b"v"), bench.at)
    assert bench.accumulator.next_wake == bench.now + 60.0

    bench.pass_time(60.0)

    assert isinstance(bench.accumulator.take_failure(), DeliveryTimeoutError)
    assert bench.accumulator.buffered_bytes == 0


def test_records_of_a_deleted_topic_fail_with_its_error() -> None:
    bench = Bench()
    known_topic(bench)
    bench.append()
    reason = UnknownTopicError("it was deleted")

    bench.accumulator.fail_topic(TOPIC, reason)

    assert bench.accumulator.failed_record_count == 1
    assert bench.accumulator.take_failure() is reason
    assert not bench.accumulator.knows(TOPIC)
    assert bench.accumulator.buffered_bytes == 0


def test_a_briefly_unknown_topic_keeps_its_sequences() -> None:
    """I78e: otherwise brokers drop new records as duplicates, and these are lost."""
    bench = Bench(partition_count=1)
    known_topic(bench, 1)
    bench.append()
    bench.grant_identity()
    bench.send()
    bench.accumulator.fail_topic(TOPIC, UnknownTopicError("this broker has not heard of it yet"))
    bench.accumulator.set_topic(TOPIC, [True], bench.at)

    bench.append()
    bench.finish()

    assert bench.broker.partitions[0].values == [b"000000", b"000001"]


def test_while_a_failure_waits_to_be_raised_the_fast_path_is_closed() -> None:
    bench = Bench()
    known_topic(bench)
    bench.append()
    bench.accumulator.fail_topic(TOPIC, UnknownTopicError("it was deleted"))
    bench.accumulator.set_topic(TOPIC, [True, True], bench.at)
    assert bench.accumulator.queues_by_topic == {}

    bench.accumulator.take_failure()

    assert list(bench.accumulator.queues_by_topic) == [TOPIC]


def test_a_failure_with_a_waiting_caller_is_not_kept() -> None:
    bench = Bench()
    known_topic(bench)
    bench.append()
    bench.appended[0][1].batch.awaited_count += 1

    bench.accumulator.fail_topic(TOPIC, UnknownTopicError("it was deleted"))

    assert bench.accumulator.take_failure() is None


@pytest.mark.parametrize("is_settled_first", [False, True])
def test_a_failure_whose_caller_stopped_waiting_is_kept(is_settled_first: bool) -> None:
    bench = Bench()
    accumulator = known_topic(bench)
    bench.append()
    appended, failure = bench.appended[0][1], UnknownTopicError("it was deleted")
    appended.batch.awaited_count += 1
    if is_settled_first:
        accumulator.fail_topic(TOPIC, failure)
        accumulator.stop_awaiting(appended)
    else:
        accumulator.stop_awaiting(appended)
        accumulator.fail_topic(TOPIC, failure)

    assert (accumulator.failed_record_count, accumulator.take_failure()) == (1, failure)


def test_a_size_limit_of_a_broker_applies_to_later_batches() -> None:
    bench = Bench(batch_size=1_000, buffer_memory=10_000)
    known_topic(bench, 1)
    bench.append_many(20)
    ((_, (drained, *_)),) = bench.accumulator.drain(bench.now, bench.node_of).items()

    error = RecordTooLargeError("too large", size_bytes=900, limit_bytes=100)
    bench.accumulator.retry_or_fail(drained, error, bench.now)
    bench.append_many(4)

    assert [appended.batch.count for _, appended in bench.appended[-4:]] == [2, 2, 2, 2]


def test_a_producer_id_serves_every_partition_that_has_not_used_it() -> None:
    bench = Bench()
    accumulator = known_topic(bench)
    for partition in (0, 1):
        bench.append(partition=partition)
        bench.send()

    assert accumulator.identity_to_renew() is None
    assert [appended.queue.identity for _, appended in bench.appended] == [
        ProducerIdentity(1, 0)
    ] * 2


def test_a_sequence_gap_bumps_the_epoch_of_its_partition_only() -> None:
    bench = Bench()
    accumulator = known_topic(bench)
    for partition in (0, 1, 1):
        bench.append(partition=partition)
        accumulator.close_all()
    bench.send()

    bench.broker.execute()
    bench.broker.execute(InvalidBatchError)
    bench.broker.execute()
    for _ in range(3):
        bench.broker.reply(bench.now)
    bench.send()
    assert accumulator.identity_to_renew() == ProducerIdentity(1, 0)
    accumulator.set_identity(ProducerIdentity(1, 1))
    bench.finish()

    healthy, failed, later = (appended.queue.identity for _, appended in bench.appended)
    assert (healthy, failed, later) == (
        ProducerIdentity(1, 0),
        ProducerIdentity(1, 1),
        ProducerIdentity(1, 1),
    )
    assert bench.broker.partitions[1].values == [b"000002"]


@pytest.mark.parametrize("is_one_call", [False, True])
def test_a_batch_has_no_more_records_than_brokers_accept(*, is_one_call: bool) -> None:
    most = PRODUCED_COUNT_MAX
    bench = Bench(partition_count=1, batch_size=1 << 30, buffer_memory=1 << 30, linger=10.0)
    bench.accumulator.set_topic(TOPIC, [True], bench.at)
    values: list[bytes | None] = [b""] * (most + 10)
    appended: list[AppendResult | None] = []
    if is_one_call:
        records = ManyRecords(values)
        while records.remaining_count:
            appended.append(bench.accumulator.append_many(TOPIC, None, records, now=bench.at))
    else:
        record = ProducerRecord(TOPIC, b"")
        appended = [bench.accumulator.append(record, bench.at) for _ in values]

    batches = {each.batch.order: each.batch for each in appended if each is not None}
    assert [batch.count for batch in batches.values()] == [most, 10]
