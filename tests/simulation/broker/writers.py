"""Writing clients, on the wire protocol or the library, that record each outcome."""

# Reads private state of the client.
# pyright: reportPrivateUsage=false

from collections import Counter, defaultdict
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from random import Random
from typing import final

import trio

from tests.simulation.broker.keys import as_tombstone, is_tombstone, key_of
from tests.simulation.broker.outcomes import outcome_of
from tests.simulation.broker.plans import ProducerPlan
from tests.simulation.broker.readers import BACKOFF_S, PATIENCE_S, with_connection
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.checkers.history import Operation, Outcome, Poll, Send
from tests.simulation.checkers.run_history import (
    Acknowledged,
    RunHistory,
    SentRecord,
    ViolationError,
)
from tests.simulation.machine.broker_host import HOST, PORT, TOPIC
from tests.simulation.machine.clock import EPOCH_MS
from tests.simulation.machine.process import Process
from tidelog.client.client import Client, connect
from tidelog.client.config import ProducerConfig
from tidelog.client.producer.producer import Producer
from tidelog.wire.batch.compression import CODEC_NAMES
from tidelog.wire.batch.record_batch import FORMAT_COLUMNAR, Columns, Headers, encode_batch
from tidelog.wire.errors import (
    BrokerError,
    DuplicateSequenceError,
    LogOfflineError,
    OutOfOrderSequenceError,
    RequestTimedOutError,
    TidelogError,
    from_wire,
)
from tidelog.wire.messages.produce import (
    Acks,
    InitProducerRequest,
    PartitionAppended,
    PartitionBatch,
    ProduceReply,
    ProduceRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome as RpcOutcome
from tidelog.wire.transport.rpc import RpcConnection

_RESENT_MAX = 5
"""Batches of a producer that a broker remembers for deduplication."""
_METADATA_AGE_S = 2.0
"""The default, five minutes, exceeds any run: the client would see no new partitions."""
_LAST_COUNT = 4
_LAST_PATIENCE_S = 1.0
"""A flush takes milliseconds without faults."""
_ACKS_SETTINGS = {0: 0, 1: 1, 2: "all"}


@final
class Values:
    """Factory of the records of one producer."""

    def __init__(
        self,
        name: str,
        plan: ProducerPlan,
        random: Random,
        *,
        partition_count: int,
        first_number: int = 0,
    ) -> None:
        """Number records from 0 in each partition; partition 0 is `first_number` to the history."""
        self.name = name
        self._first_number = first_number
        self.random = random
        self.leaves_last_alone = False
        """Whether the partition that was last at the beginning gets no records."""
        self.partition_count = partition_count
        """Number of partitions that this producer knows of."""
        self._last = partition_count - 1
        self._plan = plan
        self._numbers: Counter[int] = Counter()

    def choose_partition(self) -> int:
        """Return the partition of the next burst."""
        chosen = self.random.randrange(max(self.partition_count - self.leaves_last_alone, 1))
        is_behind = self.leaves_last_alone and 0 < self._last <= chosen
        return chosen + is_behind

    def next(self, partition: int) -> SentRecord:
        """Return a new record."""
        number = self._numbers[partition]
        self._numbers[partition] += 1
        size = self.random.randint(0, self._plan.max_value_bytes)
        padding = self.random.randbytes(size // 2).hex()
        known_as = self._first_number + partition
        value = f"{self.name}/{known_as}/{number}/{padding}".encode()
        return SentRecord(self.name, known_as, number, value)


@final
class LibraryWriter:
    """Sends with the client library, in concurrent bursts.

    When it is told to stop, it sends one more record until that is acknowledged: the proof of
    liveness. Then it sends a few more, each while the one before is being synced. No fault is
    active any more, so all of them must be acknowledged in time, though no other client writes
    after them.
    """

    def __init__(
        self,
        plan: ProducerPlan,
        values: Values,
        run_history: RunHistory,
        *,
        sometimes: Sometimes,
        history: list[Operation],
        addresses: str = f"{HOST}:{PORT}",
    ) -> None:
        """Send the records of `values` to the brokers at `addresses`."""
        self.should_stop = False
        self._plan = plan
        self._values = values
        self._run_history = run_history
        self._sometimes = sometimes
        self._history = history
        self._addresses = addresses
        self._was_told_why = False
        """Whether a log is offline until the broker restarts, or a partition has reported that
        earlier records were lost, which it reports once."""
        self._told: list[tuple[SentRecord, Outcome, int | None]] = []
        """Outcome and offset of each record of the current operation."""

    async def run(self, process: Process) -> None:
        """Write until told to stop."""
        while True:
            try:
                async with connect(
                    self._addresses,
                    env=process.env,
                    request_timeout=self._plan.request_timeout_s,
                    metadata_max_age=_METADATA_AGE_S,
                ) as client:
                    await self._write(client)
                    return
            except TidelogError:
                await trio.sleep(BACKOFF_S)

    async def _write(self, client: Client) -> None:
        plan = self._plan
        config = ProducerConfig(
            acks=_ACKS_SETTINGS[plan.acks],  # type: ignore[arg-type]  # of the right three
            enable_idempotence=plan.is_idempotent,
            compression_type=plan.compression,  # type: ignore[arg-type]  # of the right three
            delivery_timeout=plan.delivery_timeout_s,
            linger=plan.linger_s,
            batch_size=plan.batch_size,
            max_in_flight_requests_per_connection=plan.max_in_flight,
        )
        async with client.producer(config) as producer:
            if plan.batch_format == FORMAT_COLUMNAR:
                producer._accumulator._rules.columnar_from = 1
            await self._send_until_acknowledged(producer)
            # The metadata of the topic is cached from now on, so `send` appends at once.
            while not self.should_stop:
                await trio.sleep(self._values.random.expovariate(1 / plan.pause_s))
                self._values.partition_count = _known_count(client, self._values.partition_count)
                partition = self._values.choose_partition()
                with self._operation():
                    async with trio.open_nursery() as nursery:
                        for _ in range(self._values.random.randint(1, plan.burst_max)):
                            if plan.is_scattered:
                                partition = self._values.choose_partition()
                            nursery.start_soon(self._send, producer, partition)
            await self._send_until_acknowledged(producer)
            attempt_count = 0
            while attempt_count < plan.last_attempts:
                self._was_told_why = False
                with self._operation():
                    is_answered = await self._send_the_last(producer)
                if is_answered:
                    return
                attempt_count += not self._was_told_why
            raise ViolationError(
                "Liveness", f"{self._values.name} is not answered in time without faults"
            )

    async def _send_until_acknowledged(self, producer: Producer) -> None:
        is_acknowledged = False
        while not is_acknowledged:
            with self._operation():
                is_acknowledged = await self._send(producer, self._values.choose_partition())

    async def _send_the_last(self, producer: Producer) -> bool:
        """Send a few records in quick succession; return whether all are acknowledged soon."""
        partition = self._values.choose_partition()
        gap_s = 10 ** self._values.random.uniform(-4, -2)
        outcomes: list[bool] = []

        async def send() -> None:
            asked_at = trio.current_time()
            is_acknowledged = await self._send(producer, partition)
            outcomes.append(is_acknowledged and trio.current_time() - asked_at < _LAST_PATIENCE_S)

        async with trio.open_nursery() as nursery:
            for _ in range(_LAST_COUNT):
                nursery.start_soon(send)
                await trio.sleep(self._values.random.expovariate(1 / gap_s))
        return all(outcomes)

    async def _send(self, producer: Producer, partition: int) -> bool:
        """Send one record; return whether it was acknowledged."""
        record = self._values.next(partition)
        asked_at = trio.current_time()
        self._run_history.sent(record)
        outcome, offset, level = Outcome.UNKNOWN, None, 0
        try:
            key = key_of(record.value) if self._plan.has_keys else None
            value, headers = _as_sent(record.value, self._plan)
            receipt = await producer.send(
                TOPIC, value, key=key, headers=headers, partition=partition
            )
            outcome = Outcome.OK
            if self._plan.is_told:
                offset = receipt.offset
                level = 0 if receipt.ack_level is None else int(receipt.ack_level)
        except TidelogError as error:
            outcome = outcome_of(error)
            self._was_told_why |= isinstance(error, (LogOfflineError, OutOfOrderSequenceError))
        finally:  # A killed client has an unknown outcome, which the history needs as well.
            self._told.append((record, outcome, offset))
        if outcome is Outcome.OK:
            self._run_history.acknowledged(Acknowledged(record, offset, level, asked_at))
            return True
        if outcome is Outcome.FAILED:
            self._sometimes.reached("send refused")
            self._run_history.refused(record)
        else:
            self._sometimes.reached("outcome unknown")
        await trio.sleep(BACKOFF_S)
        return False

    @contextmanager
    def _operation(self) -> Generator[None]:
        """Record all sends of the block as one operation, with a part for each outcome."""
        self._told.clear()
        began_at = trio.current_time()
        try:
            yield
        finally:
            told = sorted(self._told, key=lambda each: each[0].number)
            for wanted in Outcome:
                steps: list[Send | Poll] = [
                    Send(str(record.partition), record.value.decode(), offset)
                    for record, outcome, offset in told
                    if outcome is wanted
                ]
                known = wanted if self._plan.is_told else Outcome.UNKNOWN
                if steps:
                    name = self._values.name
                    self._history.append(Operation(name, known, steps, began_at))


def _as_sent(value: bytes, plan: ProducerPlan) -> tuple[bytes | None, Headers]:
    """Return value and headers of the record of a value."""
    if plan.has_tombstones and is_tombstone(value):
        return None, as_tombstone(value)
    return value, ()


def _known_count(client: Client, known_before: int) -> int:
    """Return the number of partitions that a client knows; the client refreshes its metadata."""
    topic = client._cluster.metadata.topic(TOPIC)
    return known_before if topic is None else len(topic.partitions)


@final
class RawWriter:
    """Writes batch by batch without the library, and sometimes repeats an acknowledged batch.

    Invariant: the batch in flight is repeated until it is acknowledged.
    """

    def __init__(
        self,
        plan: ProducerPlan,
        values: Values,
        run_history: RunHistory,
        *,
        sometimes: Sometimes,
        topic_id: bytes,
        may_resend: bool = True,
    ) -> None:
        """Send the records of `values`.

        `may_resend` is whether acknowledged records are certain to be in the log.
        """
        self.should_stop = False
        self._may_resend = may_resend
        self._plan = plan
        self._values = values
        self._run_history = run_history
        self._sometimes = sometimes
        self._topic_id = topic_id
        self.producer_id = 0
        """Producer id; 0 before the broker has assigned one."""
        self._sequences: Counter[int] = Counter()
        self._under_way: _Batch | None = None
        self._acknowledged: defaultdict[int, list[_Batch]] = defaultdict(list)

    async def run(self, process: Process) -> None:
        """Write until told to stop."""
        await with_connection(process, self.write)

    async def write(self, connection: RpcConnection) -> None:
        """Write until told to stop and a batch is acknowledged, or until the connection fails."""
        random = self._values.random
        has_proof = False
        while self._under_way is not None or not (self.should_stop and has_proof):
            with trio.fail_after(PATIENCE_S):
                if self.producer_id == 0:
                    reply = await connection.ask(api.INIT_PRODUCER, InitProducerRequest())
                    self.producer_id = reply.producer_id
                if self._under_way is None:
                    self._under_way = self._next_batch()
                has_proof = await self._deliver(connection, self._under_way)
                if has_proof and self._may_resend and random.random() < 0.1:
                    await self._resend(connection)
            await trio.sleep(random.expovariate(1 / self._plan.pause_s))

    async def haunt(self, connection: RpcConnection) -> BrokerError | None:
        """Send to a deleted topic; return the refusal, `None` if the broker accepted the batch."""
        ghost = SentRecord(self._values.name, 0, 0, b"ghost")
        batch = _Batch(0, [ghost], self._sequences[0], asked_at=trio.current_time())
        with trio.fail_after(PATIENCE_S):
            refusal = (await self._produce(connection, batch)).error
        return None if refusal is None else from_wire(refusal)

    def _next_batch(self) -> "_Batch":
        partition = self._values.choose_partition()
        count = self._values.random.randint(1, self._plan.burst_max)
        records = [self._values.next(partition) for _ in range(count)]
        for record in records:
            self._run_history.sent(record)
        first = self._sequences[partition]
        self._sequences[partition] += count
        return _Batch(partition, records, first, asked_at=trio.current_time())

    async def _deliver(self, connection: RpcConnection, batch: "_Batch") -> bool:
        """Send a batch once; return whether it was acknowledged."""
        batch.send_count += 1
        asked_at = trio.current_time()
        result = await self._produce(connection, batch)
        if result.error is not None:
            error = from_wire(result.error)
            if isinstance(error, RequestTimedOutError):
                self._sometimes.reached("produce timed out")
            if isinstance(error, OutOfOrderSequenceError):
                self._reset_producer_id(batch)
                return False
            if isinstance(error, DuplicateSequenceError):
                self._under_way = None  # The batch is in the log at an unknown offset.
                return True
            self._run_history.told(batch.records[0].partition, error, asked_at)
            await trio.sleep(BACKOFF_S)
            return False
        self._under_way = None
        self._note_acknowledged(batch, result, batch.asked_at)
        batch.base_offset = result.base_offset
        batch.start_count = self._run_history.start_count
        self._acknowledged[batch.partition].append(batch)
        return True

    def _reset_producer_id(self, batch: "_Batch") -> None:
        """Request a new producer id, because batches before this one were lost, as they may be.

        If this batch was sent before, it may have been in the log, and may have been read.
        """
        self.producer_id = 0
        self._sequences.clear()
        if batch.send_count > 1:
            self._under_way = None
        else:
            self._sequences[batch.partition] = len(batch.records)
            batch.base_sequence = 0
        self._acknowledged.clear()

    async def _resend(self, connection: RpcConnection) -> None:
        batches = self._acknowledged[self._values.choose_partition()][-_RESENT_MAX:]
        if not batches:
            return
        batch = self._values.random.choice(batches)
        asked_at = trio.current_time()
        result = await self._produce(connection, batch)
        if result.error is None:
            self._sometimes.reached("resent batch")
            if batch.start_count < self._run_history.start_count:
                self._sometimes.reached("resent after crash")
            self._note_acknowledged(batch, result, asked_at)

    def _note_acknowledged(
        self, batch: "_Batch", result: PartitionAppended, asked_at: float
    ) -> None:
        for number, record in enumerate(batch.records):
            self._run_history.acknowledged(
                Acknowledged(record, result.base_offset + number, result.ack_level, asked_at)
            )

    async def _produce(self, connection: RpcConnection, batch: "_Batch") -> PartitionAppended:
        encoded = batch.encode(self._plan, self.producer_id)
        entry = PartitionBatch(self._topic_id, batch.partition, len(encoded))
        request = ProduceRequest(Acks(self._plan.acks), self._plan.ack_timeout_ms, [entry])
        (result,) = (await ask_to_produce(connection, request, [encoded])).results
        return result


@final
class _Batch:
    """A batch that a raw writer writes or has written."""

    def __init__(
        self, partition: int, records: Sequence[SentRecord], base_sequence: int, *, asked_at: float
    ) -> None:
        self.partition = partition
        self.records = records
        self.base_sequence = base_sequence
        self.asked_at = asked_at
        self.base_offset = 0
        self.start_count = 0
        """Number of starts of the broker when the batch was acknowledged."""
        self.send_count = 0

    def encode(self, plan: ProducerPlan, producer_id: int) -> bytes:
        values = [record.value for record in self.records]
        keys = [key_of(value) for value in values] if plan.has_keys else None
        sent = [_as_sent(value, plan) for value in values]
        headers = [headers for _, headers in sent]
        return bytes(
            encode_batch(
                Columns(
                    len(values),
                    keys=keys,
                    values=[value for value, _ in sent],
                    headers=headers if any(headers) else None,
                ),
                first_timestamp_ms=EPOCH_MS + int(self.asked_at * 1000),
                codec=CODEC_NAMES[plan.compression],
                producer_id=producer_id,
                base_sequence=self.base_sequence,
                format_version=plan.batch_format,
            )
        )


async def ask_to_produce(
    connection: RpcConnection, request: ProduceRequest, attachment: Sequence[bytes]
) -> ProduceReply:
    """Return the reply to one produce request.

    Raises:
        TidelogError: The connection was lost, or the request as a whole was refused.
    """
    outcomes: list[RpcOutcome] = []
    done = trio.Event()

    def take(outcome: RpcOutcome) -> None:
        outcomes.append(outcome)
        done.set()

    connection.submit(api.PRODUCE, request, take, attachment=attachment)
    await done.wait()
    (outcome,) = outcomes
    reply = outcome if isinstance(outcome, Exception) else outcome[0]
    if isinstance(reply, Exception):
        raise reply
    assert isinstance(reply, ProduceReply)
    return reply
