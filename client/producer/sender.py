"""Sender of a producer: produce requests from the accumulator, and their replies.

Shell: submits produce requests and reports their outcomes to the accumulator, which decides.
Requests are sent from the task that made them possible: that of the caller, or that of the
connection which brought a reply. One task waits for time to pass.
"""

import math
from functools import partial
from typing import cast, final

import trio

from tidelog.client.cluster.clock import Timestamp
from tidelog.client.cluster.cluster_client import STALE_METADATA_ERRORS, ClusterClient
from tidelog.client.cluster.coalescer import Coalescer
from tidelog.client.producer.partition_batches import PartitionBatches, ProducerIdentity
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
    ProduceReply,
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


@final
class _InFlight:
    """Produce request in flight."""

    def __init__(
        self, connection: RpcConnection, drained_batches: list[DrainedBatch], expires_at: float
    ) -> None:
        self.connection = connection
        self.drained_batches = drained_batches
        self.expires_at = expires_at


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
        self._in_flight: dict[_InFlight, None] = {}
        """Requests in the order of their submission, which is that of their expiry."""
        self._is_renewing_identity = False
        self._is_sending = False
        self._coalescer = Coalescer(self.send)
        self._wake = trio.Event()
        self._sleeps_until = 0.0
        self._resumes_at = math.inf
        """When a broker that throttles this client reads on, in trio's seconds."""
        self._progress = trio.Event()

    @property
    def in_flight_request_count(self) -> int:
        """Number of produce requests that wait for their reply."""
        return len(self._in_flight)

    def now(self) -> Timestamp:
        """Return the current time."""
        return Timestamp(trio.current_time(), self._cluster.env.clock.now_ms())

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
        self._wake.set()

    async def wait_progress(self) -> None:
        """Wait until some batches are settled or some topic becomes known or fails.

        Raises:
            ClosedError: The client is closed.
        """
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
            now = trio.current_time()
            while requests := self._accumulator.drain(now, self._node_of, only_full=only_full):
                for node_id, drained_batches in requests.items():
                    self._submit_all(node_id, drained_batches, now)
        finally:
            self._is_sending = False
        if not self._is_renewing_identity and self._accumulator.identity_to_renew() is not None:
            self._is_renewing_identity = True
            self._cluster.tasks.start_soon(self._renew_identity)
        if self._next_wake() < self._sleeps_until:
            self._wake.set()

    async def send_together(self) -> None:
        """Send what can be sent, together with the records of other calls in this turn of the loop.

        The first call sends for all, so the others return at once. A cancelled call sends at once.
        """
        await self._coalescer.request()

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
                self._sleeps_until = self._next_wake()
                with trio.CancelScope(deadline=self._sleeps_until):
                    await self._wake.wait()
                if self._cluster.env.buggify("producer wakes late"):
                    await trio.sleep(self._cluster.env.random.uniform(0, _LATE_MAX_S))
                self._wake = trio.Event()
                self._resume_throttled()
                self._accumulator.wake(self.now())
                self._close_dead_connections()
                self._progressed()
        finally:
            self._cluster.unsubscribe(self.cluster_changed)

    def _next_wake(self) -> float:
        oldest = next(iter(self._in_flight), None)
        wake = min(self._accumulator.next_wake, self._resumes_at)
        return wake if oldest is None else min(wake, oldest.expires_at)

    def _progressed(self) -> None:
        self.send()
        progress, self._progress = self._progress, trio.Event()
        progress.set()

    def _node_of(self, queue: PartitionBatches) -> int | None:
        leader_id = self._cluster.metadata.leader_of(queue.topic, queue.partition)
        if leader_id is None:
            self._cluster.request_refresh([queue.topic])
        elif (connection := self._cluster.connection_nowait(leader_id)) is not None:
            resumes_at = connection.throttled_until(QuotaRate.PRODUCE_BYTES)
            if resumes_at <= trio.current_time():
                return leader_id
            # Requests behind these records would wait with them.
            self._resumes_at = min(self._resumes_at, resumes_at)
        else:
            queue.unreachable = self._cluster.connect_failure(leader_id)
        return None

    def _resume_throttled(self) -> None:
        if self._resumes_at <= trio.current_time():
            self._resumes_at = math.inf
            self._accumulator.ready_partitions.leaders_changed()

    def _submit_all(self, node_id: int, drained_batches: list[DrainedBatch], now: float) -> None:
        group: list[DrainedBatch] = []
        group_bytes = 0
        limit_bytes = self._frame_limit(node_id)
        for drained in drained_batches:
            batch_bytes = len(drained.batch.encoded)
            if batch_bytes > limit_bytes:
                what = f"a batch of {batch_bytes} bytes does not fit into a request of the broker"
                details = {"size_bytes": batch_bytes, "limit_bytes": limit_bytes}
                self._retry_or_fail_all([drained], RecordTooLargeError(what, **details))
                continue
            is_full = (
                group_bytes + batch_bytes > _REQUEST_BYTES_MAX or len(group) == LIST_LENGTH_MAX
            )
            if group and (is_full or self._cluster.env.buggify("one batch in a request")):
                self._submit(node_id, group, now)
                group, group_bytes = [], 0
            group.append(drained)
            group_bytes += batch_bytes
        if group:
            self._submit(node_id, group, now)

    def _frame_limit(self, node_id: int) -> int:
        """Return the largest batch that the broker can take: a longer frame ends a connection."""
        connection = self._cluster.connection_nowait(node_id)
        if connection is None or connection.hello is None:
            return _REQUEST_BYTES_MAX
        return connection.hello.max_frame_bytes - _HEADER_BYTES_MAX

    def _submit(self, node_id: int, drained_batches: list[DrainedBatch], now: float) -> None:
        connection = self._cluster.connection_nowait(node_id)
        if connection is None:  # It was lost while an earlier request was submitted.
            self._retry_or_fail_all(drained_batches, ConnectError("the connection was lost"))
            return
        self._cluster.refresh_if_old()
        timeout = self._cluster.config.request_timeout
        timeout_ms = int(timeout * 1000)
        batches = [self._describe(drained) for drained in drained_batches]
        in_flight = _InFlight(connection, drained_batches, now + timeout * _PATIENCE)
        self._in_flight[in_flight] = None
        attachment = [drained.batch.encoded for drained in drained_batches]
        on_complete = None if self._acks is Acks.NONE else partial(self._on_complete, in_flight)
        if self.transaction:
            staged = StageRequest(self.transaction, timeout_ms, batches)
            connection.submit(api.STAGE, staged, on_complete, attachment=attachment)
        else:
            request = ProduceRequest(int(self._acks), timeout_ms, batches)
            connection.submit(api.PRODUCE, request, on_complete, attachment=attachment)
        if on_complete is None:
            self._cluster.tasks.start_soon(self._settle_when_sent, in_flight)
        elif self._cluster.env.buggify("connection abandoned"):
            connection.close()

    def _describe(self, drained: DrainedBatch) -> PartitionBatch:
        queue = drained.queue
        topic = self._cluster.metadata.topic(queue.topic)
        assert topic is not None, "a partition with a leader belongs to a known topic"
        return PartitionBatch(topic.topic_id, queue.partition, len(drained.batch.encoded))

    async def _settle_when_sent(self, in_flight: _InFlight) -> None:
        # The bytes stay accounted for until the operating system has them.
        await in_flight.connection.wait_sent(0)
        self._in_flight.pop(in_flight, None)
        for drained in in_flight.drained_batches:
            self._accumulator.acknowledge(drained, None, None)
        self._progressed()

    def _on_complete(self, in_flight: _InFlight, outcome: Outcome) -> None:
        del self._in_flight[in_flight]
        if isinstance(outcome, Exception):
            self._retry_or_fail_all(in_flight.drained_batches, outcome)
        else:
            results = cast("ProduceReply", outcome[0]).results
            if len(results) == len(in_flight.drained_batches):
                now = self._cluster.counters.now()
                for drained, result in zip(in_flight.drained_batches, results, strict=True):
                    self._settle(drained, result, now)
            else:
                problem = f"{len(results)} results for {len(in_flight.drained_batches)} batches"
                wrong = in_flight.connection.reject(api.PRODUCE, problem)
                self._retry_or_fail_all(in_flight.drained_batches, wrong)
        self._progressed()

    def _settle(self, drained: DrainedBatch, result: PartitionAppended, now: float) -> None:
        if result.error is None:
            opened_at = self._accumulator.opened_at(drained.batch)
            self._counters.send_duration.observe(now - opened_at)
            level = _ACK_LEVELS.get(result.ack_level)
            self._accumulator.acknowledge(drained, result.base_offset, level)
        else:
            self._retry_or_fail_all([drained], from_wire(result.error))

    def _retry_or_fail_all(self, drained_batches: list[DrainedBatch], error: Exception) -> None:
        if isinstance(error, WireFormatError):
            # The connection is closed; the outcome is as unknown as after a lost connection.
            error = ConnectionLostError(str(error))
        now = trio.current_time()
        for drained in drained_batches:
            self._accumulator.retry_or_fail(drained, error, now)
        if isinstance(error, STALE_METADATA_ERRORS):
            topics = {each.queue.topic for each in drained_batches}
            self._cluster.request_refresh(topics, because=error)

    def _close_dead_connections(self) -> None:
        now = trio.current_time()
        for in_flight in list(self._in_flight):
            if in_flight.expires_at > now:
                break
            in_flight.connection.close()

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
