"""Sender of a producer: produce requests from the accumulator, and their replies.

Shell: submits produce requests and reports their outcomes to the accumulator, which decides.
Requests are sent from the task that made them possible: that of the caller, or the one which
received a reply. One task waits for time to pass.
"""

import math
from collections.abc import Sequence
from functools import partial
from typing import final

import msgspec
import trio

from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.clock import Timestamp
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.coalescer import Coalescer
from tidelog.client.producer.partition_batches import PartitionBatches, ProducerIdentity
from tidelog.client.producer.producer_batch import ProducerBatch
from tidelog.client.producer.record_accumulator import DrainedBatch, RecordAccumulator
from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    FencedProducerError,
    RecordTooLargeError,
    RetriableError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.field_types import LIST_LENGTH_MAX
from tidelog.wire.messages.produce import (
    AckLevel,
    Acks,
    InitProducerRequest,
    PartitionAppended,
    PartitionBatch,
    ProduceRequest,
)
from tidelog.wire.messages.transactions import StageRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

_REQUEST_BYTES_MAX = 4 << 20
"""Maximum bytes of a request shared by batches of several partitions."""
_HEADER_BYTES_MAX = 64 << 10
"""Upper bound of the bytes of a produce request without its batches."""
_PATIENCE = 1.25
"""Factor on the timeout of a request after which its connection counts as dead."""
_LATE_MAX_S = 0.05
_ACK_LEVELS = {int(level): level for level in AckLevel}


class _AwaitedRequest(msgspec.Struct, frozen=True):
    """Request whose reply a call receives."""

    connection: RpcConnection
    correlation_id: int
    expires_at: float
    """When it fails without a reply, in seconds of trio's clock."""


@final
class Sender:
    """Sends the batches of an accumulator."""

    def __init__(
        self,
        cluster: ClusterClient,
        accumulator: RecordAccumulator,
        acks: Acks,
        *,
        transaction: int = 0,
    ) -> None:
        """Send through `cluster`; `run` must run in a task of its own.

        With the number of a transaction, all batches are staged for it.
        """
        self.transaction = transaction
        """Number of the transaction to stage for; 0 to append at once."""
        self._cluster = cluster
        self._accumulator = accumulator
        self._acks = acks
        self._counters = cluster.counters.producers
        self._now = cluster.counters.now
        self._ready = accumulator.ready_partitions
        self.in_flight_request_count = 0
        """Number of produce requests that wait for their reply."""
        self._is_renewing_identity = False
        self._is_sending = False
        self._coalescer = Coalescer(self._send_collected)
        self._collected_count = 0
        """Number of calls since the last collected send."""
        self._is_alone = False
        """Whether the last call that sent was the only one: another one that follows it will not
        wait for others."""
        self._lets_others_join = False
        """Whether the task sends open batches in the next turn, after the callers of this one."""
        self._is_awaited = False
        """Whether a call waits for the first request that is submitted now."""
        self._awaited: _AwaitedRequest | None = None
        """That request."""
        self._parked = ParkedTask()
        """Parks the task that waits for time to pass."""
        self._is_woken = False
        """Whether that task is not to park before it has looked."""
        self._sleeps_until = 0.0
        self._resumes_at = math.inf
        """When a broker that throttles this client reads on, in trio's seconds."""
        self._progress: trio.Event | None = None
        """Set at the next progress; made by the first that waits for it."""

    def now(self) -> Timestamp:
        """Return the current time."""
        return Timestamp(self._now(), self._cluster.env.clock.now_ms())

    def learn_topic(self, topic: str) -> bool:
        """Route records of a topic if its partitions are known; return whether they are."""
        known = self._cluster.metadata.topic(topic)
        if known is None:
            return False
        available = [partition.leader_id is not None for partition in known.partitions]
        self._accumulator.set_topic(topic, available, self.now())
        return True

    def wake(self) -> None:
        """Send open batches when the task runs next, after more records may have been appended."""
        self._is_woken = True
        self._parked.wake()

    async def wait_progress(self) -> None:
        """Wait until some batches are settled or some topic becomes known or fails.

        Raises:
            ClosedError: The client is closed.
        """
        if self._progress is None:
            self._progress = trio.Event()
        await self._cluster.tasks.wait(self._progress)

    def send(self, *, only_full: bool = False) -> None:
        """Submit all batches that can be sent now.

        Args:
            only_full: Keep batches that have room left.
        """
        if self._is_sending:  # A submission failed at once; the loop below continues.
            return
        self._is_sending = True
        try:
            now = self._now()
            while requests := self._accumulator.drain(
                now, self._connection_of, only_full=only_full
            ):
                for connection, drained_batches in requests.items():
                    self._submit_all(connection, drained_batches, now)
        finally:
            self._is_sending = False
        if (
            self._ready.without_identity
            and not self._is_renewing_identity
            and self._accumulator.identity_to_renew() is not None
        ):
            self._is_renewing_identity = True
            self._cluster.tasks.start_soon(self._renew_identity)
        sleeps_until = self._sleeps_until
        if (
            self._ready.next_wake < sleeps_until
            or self._accumulator.unrouted_until < sleeps_until
            or self._resumes_at < sleeps_until
        ):
            self.wake()

    async def deliver(self, batches: Sequence[ProducerBatch]) -> None:
        """Send what can be sent, and wait until these batches are settled; a checkpoint.

        A call that is alone sends at once, and receives the reply itself. Otherwise calls of one
        turn of the loop send together: the first one sends for all. A cancelled call sends at once.

        Raises:
            ClosedError: The client is closed.
        """
        has_waited = True
        if not self._is_alone or self.in_flight_request_count:
            self._is_alone = False
            self._collected_count += 1
            has_waited = self._collected_count == 1
            await self._coalescer.request()
        elif (request := self._send_alone()) is not None:
            deadline = math.inf
            for batch in batches:
                deadline = min(deadline, batch.deadline)
            if deadline > request.expires_at:
                await request.connection.wait_answered(request.correlation_id)
            else:  # The records may fail before the request does.
                with trio.CancelScope(deadline=deadline):
                    await request.connection.wait_answered(request.correlation_id)
        else:
            has_waited = False
        for batch in batches:
            if not batch.is_settled:
                has_waited = True
                batch.waiting_count += 1
                signal = batch.signals.get(trio.Event)  # Most calls share that of another one.
                if not isinstance(signal, trio.Event):
                    signal = batch.signal_of(trio.Event)
                await self._cluster.tasks.wait(signal)
        if not has_waited:
            await trio.lowlevel.checkpoint()

    def _send_alone(self) -> _AwaitedRequest | None:
        """Send for a call that waits for the reply; return the first request."""
        self._is_awaited = True
        try:
            self.send()
        finally:
            self._is_awaited = False
            awaited, self._awaited = self._awaited, None
        return awaited

    def _send_collected(self) -> None:
        self._is_alone = self._collected_count == 1 and not self.in_flight_request_count
        self._collected_count = 0
        self.send()

    def cluster_changed(self) -> None:
        """Route records of known topics, fail those of missing topics, and send."""
        metadata = self._cluster.metadata
        for topic in self._accumulator.topics:
            error = metadata.error(topic)
            if error is not None:
                self._accumulator.fail_topic(topic, error)
            elif not self.learn_topic(topic):
                self._cluster.request_refresh([topic])
        self._accumulator.ready_partitions.leaders_changed()
        self._progressed()

    async def run(self) -> None:
        """Do overdue work as time passes, until cancelled."""
        self._cluster.subscribe(self.cluster_changed)
        try:
            while True:
                self._sleeps_until = min(self._accumulator.next_wake, self._resumes_at)
                if self._is_woken:
                    await trio.lowlevel.checkpoint()
                else:
                    await self._cluster.tasks.park(self._parked, self._sleeps_until)
                if self._cluster.env.buggify("producer wakes late"):
                    await trio.sleep(self._cluster.env.random.uniform(0, _LATE_MAX_S))
                self._is_woken = False
                if self._lets_others_join:
                    self._lets_others_join = False
                    await trio.lowlevel.checkpoint()
                now = self.now()
                if self._resumes_at <= now.monotonic:
                    self._resumes_at = math.inf
                    self._ready.leaders_changed()
                if self._accumulator.next_wake <= now.monotonic:
                    self._accumulator.wake(now)
                self._progressed()
        finally:
            self._cluster.unsubscribe(self.cluster_changed)

    def _progressed(self, *, only_full: bool = False) -> None:
        self.send(only_full=only_full)
        if self._progress is not None:
            self._progress.set()
            self._progress = None

    def _connection_of(self, queue: PartitionBatches) -> RpcConnection | None:
        """Return the connection to the leader of a partition, if it takes requests now."""
        leader_id = self._cluster.metadata.leader_of(queue.topic, queue.partition)
        if leader_id is None:
            self._cluster.request_refresh([queue.topic])
        elif (connection := self._cluster.connection_nowait(leader_id)) is not None:
            resumes_at = connection.throttled_until(QuotaRate.PRODUCE_BYTES)
            if resumes_at == -math.inf or resumes_at <= self._now():
                return connection
            # Requests behind these records would wait with them.
            self._resumes_at = min(self._resumes_at, resumes_at)
        else:
            queue.unreachable = self._cluster.connect_failure(leader_id)
        return None

    def _submit_all(
        self, connection: RpcConnection, drained_batches: list[DrainedBatch], now: float
    ) -> None:
        self._cluster.refresh_if_old(now)
        for place, group in enumerate(self._groups(connection, drained_batches)):
            if place and connection.is_lost:  # While an earlier request was submitted.
                self._retry_or_fail_all(group, ConnectError("the connection was lost"))
            else:
                self._submit(connection, group, now)

    def _groups(
        self, connection: RpcConnection, drained_batches: list[DrainedBatch]
    ) -> list[list[DrainedBatch]]:
        """Return the batches by request; those that fit into none are failed."""
        groups: list[list[DrainedBatch]] = []
        group_bytes = 0
        hello = connection.hello
        assert hello is not None, "the connection is in use"
        limit_bytes = hello.max_frame_bytes - _HEADER_BYTES_MAX  # A longer frame ends it.
        for drained in drained_batches:
            batch_bytes = len(drained.batch.encoded)
            if batch_bytes > limit_bytes:
                what = f"a batch of {batch_bytes} bytes does not fit into a request of the broker"
                details = {"size_bytes": batch_bytes, "limit_bytes": limit_bytes}
                self._retry_or_fail_all([drained], RecordTooLargeError(what, **details))
                continue
            group_bytes += batch_bytes
            is_full = group_bytes > _REQUEST_BYTES_MAX or (
                bool(groups) and len(groups[-1]) == LIST_LENGTH_MAX
            )
            if not groups or is_full or self._cluster.env.buggify("one batch in a request"):
                groups.append([])
                group_bytes = batch_bytes
            groups[-1].append(drained)
        return groups

    def _submit(
        self, connection: RpcConnection, drained_batches: list[DrainedBatch], now: float
    ) -> None:
        timeout = self._cluster.config.request_timeout
        timeout_ms = int(timeout * 1000)
        batches: list[PartitionBatch] = []
        attachment: list[bytearray] = []
        for drained in drained_batches:
            queue, encoded = drained.queue, drained.batch.encoded
            topic = self._cluster.metadata.topic(queue.topic)
            assert topic is not None, "a partition with a leader belongs to a known topic"
            if drained.batch.topic_id:
                drained.batch.send_to(topic.topic_id)
            else:  # Without a call, in the usual case.
                drained.batch.topic_id = topic.topic_id
            batches.append(PartitionBatch(topic.topic_id, queue.partition, len(encoded)))
            attachment.append(encoded)
        is_answered = self._acks is not Acks.NONE
        is_awaited = is_answered and self._is_awaited
        self._is_awaited = False
        self.in_flight_request_count += 1
        submit = partial(
            connection.submit,
            attachment=attachment,
            patience=timeout * _PATIENCE,
            is_awaited=is_awaited,
        )
        on_complete = None
        if is_answered:
            on_complete = partial(self._on_complete, connection, drained_batches)
        if self.transaction:
            staged = StageRequest(self.transaction, timeout_ms, batches)
            correlation_id = submit(api.STAGE, staged, on_complete)
        else:
            request = ProduceRequest(int(self._acks), timeout_ms, batches)
            correlation_id = submit(api.PRODUCE, request, on_complete)
        if is_awaited:
            expires_at = now + timeout * _PATIENCE
            self._awaited = _AwaitedRequest(connection, correlation_id, expires_at)
        if not is_answered:
            self._cluster.tasks.start_soon(self._settle_when_sent, connection, drained_batches)
        elif self._cluster.env.buggify("connection abandoned"):
            connection.close()

    async def _settle_when_sent(
        self, connection: RpcConnection, drained_batches: list[DrainedBatch]
    ) -> None:
        # The bytes stay accounted for until the operating system has them.
        await connection.wait_sent(0)
        self.in_flight_request_count -= 1
        for drained in drained_batches:
            self._accumulator.acknowledge(drained, None, None)
        self._progressed()

    def _on_complete(
        self, connection: RpcConnection, drained_batches: list[DrainedBatch], outcome: Outcome
    ) -> None:
        self.in_flight_request_count -= 1
        if isinstance(outcome, Exception):
            self._retry_or_fail_all(drained_batches, outcome)
        else:
            results: list[PartitionAppended] = outcome[0].results
            if len(results) == len(drained_batches):
                now = self._now()
                for drained, result in zip(drained_batches, results, strict=True):
                    if result.error is not None:
                        self._retry_or_fail_all([drained], from_wire(result.error))
                        continue
                    opened_at = drained.batch.deadline - self._accumulator.delivery_timeout
                    self._counters.send_duration.observe(now - opened_at)
                    level = _ACK_LEVELS.get(result.ack_level)
                    self._accumulator.acknowledge(drained, result.base_offset, level)
            else:
                problem = f"{len(results)} results for {len(drained_batches)} batches"
                self._retry_or_fail_all(drained_batches, connection.reject(api.PRODUCE, problem))
        if self._ready.candidates and any(each.batch.waiting_count > 1 for each in drained_batches):
            # The callers that wake up now may send again: their records belong into the same batch.
            self._lets_others_join = True
            self.wake()
        if self._progress is not None or self._ready.candidates or self._ready.backed_up:
            self._progressed(only_full=self._lets_others_join)

    def _retry_or_fail_all(self, drained_batches: list[DrainedBatch], error: Exception) -> None:
        if isinstance(error, WireFormatError):
            # The connection is closed; the outcome is as unknown as after a lost connection.
            error = ConnectionLostError(str(error))
        now = self._now()
        for drained in drained_batches:
            self._accumulator.retry_or_fail(drained, error, now)
        if isinstance(error, STALE_METADATA_ERRORS):
            topics = {each.queue.topic for each in drained_batches}
            self._cluster.request_refresh(topics, because=error)

    async def _renew_identity(self) -> None:
        try:
            while (held := self._accumulator.identity_to_renew()) is not None:
                request = InitProducerRequest(held.producer_id, held.producer_epoch)
                try:
                    granted = await self._cluster.call_any(
                        api.INIT_PRODUCER, request, is_repeatable=True
                    )
                except FencedProducerError:
                    self._accumulator.discard_identity()
                except (RetriableError, ConnectionLostError):
                    continue  # Batches that wait for too long fail at their deadline.
                except (BrokerError, WireFormatError) as error:
                    self._accumulator.fail_partitions_awaiting_producer_id(error)
                else:
                    identity = ProducerIdentity(granted.producer_id, granted.producer_epoch)
                    self._accumulator.set_identity(identity)
        finally:
            self._is_renewing_identity = False
        self._progressed()
