"""Records in, batches out, whatever brokers and connections do."""

import random
from typing import final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.accumulator import Accumulator, Appended, Limits
from client.backoff import Backoff
from client.instant import Instant
from client.outgoing import ManyRecords, OutgoingRecord
from client.partition_queue import DeliveryRules, Identity, PartitionQueue
from client.producer_batch import RECORD_OVERHEAD_BYTES, Fate
from tests.client.model_broker import FAILURES, ModelBroker
from wire.compression import Codec
from wire.errors import (
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
    """An accumulator, a model of brokers, and time that the test moves."""

    def __init__(
        self,
        *,
        partition_count: int = 2,
        is_idempotent: bool = True,
        batch_bytes_max: int = 200,
        buffer_bytes_max: int = 2_000,
        linger: float = 0.0,
    ) -> None:
        entropy = random.Random(7)
        rules = DeliveryRules(
            codec=Codec.NONE,
            is_idempotent=is_idempotent,
            in_flight_max=5,
            backoff=Backoff(0.1, 1.0, entropy),
        )
        limits = Limits(batch_bytes_max, buffer_bytes_max, linger, delivery_timeout=60.0)
        self.accumulator = Accumulator(limits, rules, entropy)
        self.broker = ModelBroker(self.accumulator, partition_count)
        self.now = 1000.0
        self.is_reachable = True
        self.appended: list[tuple[bytes, Appended]] = []
        self._next_epoch = 0
        self._next_value = 0

    @property
    def at(self) -> Instant:
        return Instant(self.now, int(self.now * 1000))

    def append(self, key: bytes | None = None, partition: int | None = None) -> bool:
        """Append the next record; its value is its number."""
        value = b"%06d" % self._next_value
        appended = self.accumulator.append(OutgoingRecord(TOPIC, value, key, partition), self.at)
        if appended is not None:
            self._next_value += 1
            self.appended.append((value, appended))
        return appended is not None

    def append_many(self, count: int) -> None:
        """Append records in one go, as many as fit."""
        values = [b"%06d" % (self._next_value + step) for step in range(count)]
        records = ManyRecords(values)
        while records.remaining_count:
            first = records.taken_count
            appended = self.accumulator.append_many(TOPIC, None, records, self.at)
            if appended is None:
                break
            for step in range(appended.count):
                place = appended.place + step
                one = Appended(appended.queue, appended.batch, place, 1)
                self.appended.append((values[first + step], one))
        self._next_value += records.taken_count

    def node_of(self, queue: PartitionQueue) -> int | None:
        del queue
        return 1 if self.is_reachable else None

    def send(self, *, only_full: bool = False) -> None:
        """Submit what is to be sent, as the shell does."""
        while requests := self.accumulator.collect(self.now, self.node_of, only_full=only_full):
            for departures in requests.values():
                self.broker.receive(departures)

    def grant_identity(self) -> None:
        """Answer the question for an identity, if there is one."""
        if self.accumulator.identity_to_ask() is not None:
            self._next_epoch += 1
            self.accumulator.grant(Identity(1, self._next_epoch))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        self.accumulator.wake(self.at)

    def finish(self) -> None:
        """Let everything be settled, without further faults."""
        self.is_reachable = True
        self.accumulator.schedule.leaders_changed()
        self.accumulator.close_all()
        for _ in range(300):
            self.grant_identity()
            self.send()
            while not self.broker.is_idle:
                self.broker.execute()
                self.broker.reply(self.now)
            if self.accumulator.is_idle:
                return
            self.pass_time(1.6)
        raise AssertionError("some records are never settled")


def check_fates(bench: Bench, *, is_idempotent: bool) -> None:
    """Compare what the producer was told with what the logs hold."""
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
    assert bench.accumulator.is_idle


HONEST_FAILURES = (
    ConnectionLostError,
    DeliveryTimeoutError,
    InvalidBatchError,
    RecordTooLargeError,
    UnexpectedServerError,
)
"""What a record may fail with: what the model said of just this record, or that it was late, or
that its connection was lost."""


def may_be_in_the_log(failure: Exception | None) -> bool:
    """Return whether a failure says that the record may be in the log all the same."""
    told = [str(failure), *getattr(failure, "__notes__", [])]
    return any(
        "may or may not be in the log" in line or "may be in the log" in line for line in told
    )


def fate_of(appended: Appended) -> Fate:
    (fate,) = appended.batch.fates(appended.place, appended.place + appended.count)
    return fate


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
    """Do one step of a story, then what the shell does after anything that happens."""
    match step:
        case "append":
            bench.append(key=b"key-%d" % number if number else None)
        case "fill":
            bench.append_many(number * RECORDS_PER_BATCH)
        case "execute":
            for _ in range(number):
                bench.broker.execute()
        case "fail":
            bench.broker.execute(FAILURES[number])
        case "reply":
            for _ in range(number):
                bench.broker.reply(bench.now)
                bench.send()
        case "time":
            bench.pass_time(number)
        case "lose":
            bench.broker.lose_connection(bench.now)
        case "late":
            for _ in range(number):
                bench.broker.let_late_arrive()
        case "close":
            bench.accumulator.close_all()
        case _:
            bench.is_reachable = not bench.is_reachable
            bench.accumulator.schedule.leaders_changed()
    bench.grant_identity()
    bench.send()


@pytest.mark.parametrize("is_idempotent", [True, False], ids=["idempotent", "not idempotent"])
@settings(max_examples=200)
@given(steps=st.lists(STEPS, min_size=30, max_size=100))
def test_whatever_happens_every_record_gets_a_true_fate_and_order_is_kept(
    is_idempotent: bool, steps: list[tuple[str, int]]
) -> None:
    bench = Bench(is_idempotent=is_idempotent)
    bench.accumulator.set_topic(TOPIC, [True, True], bench.at)

    for step, number in steps:
        if not is_idempotent:
            bench.broker.drop_late()  # Without idempotence nothing protects against these.
        do_step(bench, step, number)
    bench.finish()

    check_fates(bench, is_idempotent=is_idempotent)
