"""Fetcher of one consumer: fetches, positions, and the batch in flight.

Shell: sends the fetches that the fetch state plans, hands it the replies, and lets callers wait.
It has no task: the task of the connection that brings a reply stores it and sends the next fetch,
so fetching continues while the application works on earlier records.

Members of a group gain and lose partitions. A partition is staged while its start is looked up,
then read, and leaving from when it must not be handed out any more until it is dropped.
"""

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from copy import copy
from functools import partial
from typing import NamedTuple, cast, final

import trio

from tidelog.client.cluster.background_tasks import ParkedTask
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.client.cluster.metadata import MetadataCache
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch.fetch_state import Fetch, FetchState, Until
from tidelog.client.consumer.fetch.read_epochs import ReadEpochs
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.consumer.fetch.record_iterator import (
    BatchIterator,
    BatchSource,
    InFlightBatch,
    RecordIterator,
)
from tidelog.client.errors import ClosedError
from tidelog.client.metrics.counters import ConsumerGauges
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.errors import (
    ConnectionLostError,
    PartitionNotOwnedError,
    UnknownTopicError,
    WireFormatError,
)
from tidelog.wire.messages.fetch import FetchReply
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import Outcome, RpcConnection

_REFRESH_S = 30.0
"""Seconds between refreshes of the ISR, for consumers that read from followers."""
_FOLLOWER_PATIENCE_S = 5.0
"""Seconds after which a silent follower is replaced by the leader; its connection stays."""
_PUMP_S = 0.05
"""Seconds for which batches are taken from memory before retries that are due are looked for."""
_PAUSE_S = 0.005
"""Seconds for a request and its reply; a program that never awaits pauses now and then."""


class _InFlight(NamedTuple):
    """Fetch in flight."""

    connection: RpcConnection
    expires_at: float
    """When the connection counts as dead."""
    given_up_at: float
    """When the reply is not waited for any more."""


class _StagedPartition(NamedTuple):
    """Partition that was assigned and is not read yet."""

    topic_id: bytes
    offset: int | None
    """Start; `None` if the application has to seek."""
    leader_epoch: int | None = None
    """Leader epoch of the record below the start, `None` if not known."""


@final
class Fetcher:
    """Partitions, positions, and the iterators of the application."""

    def __init__(self, cluster: ClusterClient, config: ConsumerConfig, *, is_member: bool) -> None:
        """Start without partitions; in a group, it assigns them and drops deleted topics."""
        self.failure: Exception | None = None
        """Error that every further read raises."""
        self.may_hand_out: Callable[[], bool] = _always
        """Whether records may be handed out now; `wake` is called when that changes."""
        self.is_starved: Callable[[], bool] = _never
        """Whether tasks beside the application had no chance to run for a long time."""
        self._cluster = cluster
        self._now = cluster.counters.now
        self._config = config
        self._is_member = is_member
        self._fetch_state = FetchState(config, cluster.backoff, cluster.counters.consumers)
        self._topic_ids: dict[TopicPartition, bytes] = {}
        self._unknown_topics: set[str] = set()
        """Assigned topics that were reported as unknown."""
        self._staged: dict[TopicPartition, _StagedPartition] = {}
        self._leaving: dict[TopicPartition, int | None] = {}
        self._left_epochs: dict[TopicPartition, ReadEpochs] = {}
        """Leader epochs of leaving partitions, for their last commits."""
        self._in_flight_fetches: dict[Fetch, _InFlight] = {}
        """Fetches in flight."""
        self._waiters: dict[ParkedTask, None] = {}
        """Calls that wait for records."""
        self._in_flight_batch = InFlightBatch()
        self._was_finished = trio.Event()
        self._is_open = False
        self._is_polled = False
        """Whether the application waits for records."""
        self._polled_at = 0.0
        """Time at which it last stopped waiting (monotonic seconds)."""
        self._refresh_at = -math.inf
        self._pumps_at = -math.inf
        """When buffered batches are not taken without a look at the fetches, in trio's seconds."""
        self._resumes_at = math.inf
        """When a broker that throttles fetches of this client reads on, in trio's seconds."""

    def open(self) -> None:
        """Start fetching."""
        assert not self._is_open, "a consumer is opened once"
        self._is_open = True
        self._polled_at = self._now()
        self._cluster.counters.consumers.gauges[self] = self._gauges
        self._cluster.subscribe(self._cluster_changed)

    def close(self) -> None:
        """Stop for good."""
        if self._is_open:
            self._is_open = False
            self._cluster.counters.consumers.gauges.pop(self, None)
            self._cluster.unsubscribe(self._cluster_changed)
        self.wake()

    @property
    def assignment(self) -> list[TopicPartition]:
        """Partitions that are read, or staged."""
        return [*self._topic_ids, *self._staged]

    @property
    def unplaced(self) -> list[TopicPartition]:
        """Partitions without a position."""
        return self._fetch_state.unplaced

    @property
    def in_flight_partition(self) -> TopicPartition | None:
        """Partition of the batch in flight, `None` without one."""
        return self._in_flight_batch.at

    @property
    def progress(self) -> tuple[int, int]:
        """Value that changes whenever the application receives a record or a batch."""
        return self._in_flight_batch.progress

    def assign(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Read exactly these partitions; those that were read before keep their position."""
        self.interrupt()
        self._topic_ids = dict(topic_ids)
        self._fetch_state.assign(self._topic_ids)

    def stage(
        self,
        tp: TopicPartition,
        topic_id: bytes,
        offset: int | None,
        *,
        leader_epoch: int | None = None,
    ) -> None:
        """Stage a partition that will be read from `offset` on, unless it is sought.

        `leader_epoch` wrote the record below, if that is known.
        """
        self._staged[tp] = _StagedPartition(topic_id, offset, leader_epoch)

    def begin(self, partitions: Iterable[TopicPartition]) -> None:
        """Start reading staged partitions."""
        begun = {tp: self._staged.pop(tp) for tp in partitions if tp in self._staged}
        self.assign({**self._topic_ids, **{tp: each.topic_id for tp, each in begun.items()}})
        for tp, (_, offset, leader_epoch) in begun.items():
            if offset is not None:
                self._fetch_state.seek(tp, offset, leader_epoch)
        self.wake()
        self.pump()

    def stop(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out nothing more of these partitions; their positions stay known."""
        self.interrupt()
        kept = dict(self._topic_ids)
        for tp in partitions:
            if kept.pop(tp, None) is not None:
                self._leaving[tp] = self._fetch_state.position(tp)
                self._left_epochs[tp] = self._fetch_state.epochs(tp)
            elif tp in self._staged:
                self._leaving[tp] = self._staged.pop(tp).offset
        self.assign(kept)
        self.wake()

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop stopped partitions; their records in hand do not count any more."""
        for tp in partitions:
            self._leaving.pop(tp, None)
            self._left_epochs.pop(tp, None)
            if tp == self._in_flight_batch.at:
                self._in_flight_batch.revoke()

    def position(self, tp: TopicPartition) -> int | None:
        """Return the offset of the next record to hand out, `None` without a position.

        Raises:
            ValueError: The partition is not assigned.
        """
        if tp in self._leaving:
            return self._leaving[tp]
        if tp in self._staged:
            return self._staged[tp].offset
        rest = self._in_flight_batch.cursor.rest()
        if rest is not None and (rest.topic, rest.partition) == tp:
            return rest.base_offset
        return self._fetch_state.position(tp)

    def topic_id(self, tp: TopicPartition) -> bytes:
        """Return the id of the topic of an assigned partition.

        Raises:
            ValueError: The partition is not assigned.
        """
        staged = self._staged.get(tp)
        found = self._topic_ids.get(tp) if staged is None else staged.topic_id
        if found is None:
            raise ValueError(f"{tp.topic}/{tp.partition} is not assigned")
        return found

    def leader_epoch_before(self, tp: TopicPartition, offset: int) -> int | None:
        """Return the leader epoch of the record below `offset`, `None` if it was not read."""
        epochs = self._left_epochs.get(tp)
        if epochs is None and tp in self._topic_ids:
            epochs = self._fetch_state.epochs(tp)
        return None if epochs is None else epochs.before(offset)

    def processed(self, tp: TopicPartition) -> int | None:
        """Return the first offset that is not processed, `None` for partitions not read."""
        if tp == self._in_flight_batch.at and not self._in_flight_batch.is_revoked:
            return self._in_flight_batch.offset
        is_read = tp in self._topic_ids or tp in self._leaving
        return self.position(tp) if is_read else None

    def ack(self) -> None:
        """Count everything that was handed out as processed.

        Raises:
            PartitionNotOwnedError: The partition of the batch in flight was lost meanwhile.
        """
        tp = self._in_flight_batch.at
        if tp is None:
            return
        if self._in_flight_batch.is_revoked:
            raise PartitionNotOwnedError(
                f"{tp.topic}/{tp.partition} was lost while a record of it was in hand: another"
                f" member has it now and gets the record, too; continue with the next record"
            )
        self._in_flight_batch.ack(self.position(tp) or 0)

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Hand out the record at `offset` next.

        Raises:
            ValueError: The partition is not assigned.
        """
        self.interrupt()
        if tp in self._staged:
            self._staged[tp] = self._staged[tp]._replace(offset=offset, leader_epoch=None)
        elif tp in self._leaving:
            self._leaving[tp] = offset
        else:
            self._fetch_state.seek(tp, offset)
        if tp == self._in_flight_batch.at:
            self._finish()

    def records(self, until: Until | None) -> RecordIterator:
        """Iterate over records."""
        self.interrupt()
        pause = self._pause if self._is_member else None
        take = partial(self.take, until)
        source = BatchSource(take, partial(self.take_nowait, until), self.give_back)
        return RecordIterator(source, self._in_flight_batch.cursor, pause=pause)

    def batches(self, until: Until | None) -> BatchIterator:
        """Iterate over batches."""
        self.interrupt()
        take, take_nowait = partial(self.take, until), partial(self.take_nowait, until)
        return BatchIterator(BatchSource(take, take_nowait, self.give_back))

    def give_back(self, batch: RecordBatch) -> None:
        """Take back the last batch, or its end; the records before count as processed."""
        tp = TopicPartition(batch.topic, batch.partition)
        if self._leaving.get(tp) == batch.next_offset:
            self._leaving[tp] = batch.base_offset
        self._fetch_state.give_back(batch)
        if tp == self._in_flight_batch.at:
            self._finish()

    def interrupt(self) -> None:
        """Hand out nothing more of the batch in flight until the next request for a record."""
        rest = self._in_flight_batch.cursor.stop()
        if rest is not None:
            self._fetch_state.give_back(rest)

    def rewind(self) -> None:
        """Hand out the batch in flight again, to the next reader."""
        self.interrupt()
        tp = self._in_flight_batch.at
        offset = None if self._in_flight_batch.is_revoked else self._in_flight_batch.offset
        self._finish()
        if tp is not None and offset is not None:
            if tp in self._leaving:
                self._leaving[tp] = offset
            elif tp in self._topic_ids:
                epoch = self.leader_epoch_before(tp, offset)
                self._fetch_state.seek(tp, offset, epoch)

    async def take(self, until: Until | None) -> RecordBatch | None:
        """Return the next records, `None` when all before `until` were handed out.

        The batch in flight counts as processed. If cancelled, nothing is lost.
        """
        self._finish()  # A cancelled call counts as a request, too.
        self._is_polled = True
        try:
            return await self._take(until)
        finally:
            self._is_polled = False
            self._polled_at = self._now()

    def take_nowait(self, until: Until | None) -> RecordBatch | None:
        """Return the next records if they have arrived, `None` if `take` is to find out.

        The batch in flight counts as processed, also if there is no other one.
        """
        self._finish()
        is_ready = self._is_open and self.failure is None and self.may_hand_out()
        if not is_ready or self.is_starved():
            return None
        self._polled_at = self._now()
        return self._take_buffered(self._ends(until))

    def _take_buffered(self, ends: Until | None) -> RecordBatch | None:
        now = self._now()
        batch = self._fetch_state.take(ends, now)
        if batch is None or self._fetch_state.has_room or now >= self._pumps_at:
            self.pump()
        if batch is not None:
            self._in_flight_batch.take(batch)
        return batch

    async def _take(self, until: Until | None) -> RecordBatch | None:
        if self._fetch_state.is_ready or self.failure is not None or not self._is_open:
            await trio.lowlevel.checkpoint()
        else:  # The wait for records is the checkpoint.
            await trio.lowlevel.checkpoint_if_cancelled()
        if self.is_starved():
            await self._let_others_run()
        while True:
            if not self._is_open:
                raise ClosedError("use 'async with client.consumer(...) as consumer'")
            if self.failure is not None:
                raise self.failure
            wake_at = math.inf
            if self.may_hand_out():
                ends = self._ends(until)
                batch = self._take_buffered(ends)
                if batch is not None:
                    return batch
                if self._is_done(until, ends):
                    await trio.lowlevel.checkpoint()
                    return None
                wake_at = self._next_wake(self._now())
            waiter = ParkedTask()
            self._waiters[waiter] = None
            try:
                await self._cluster.tasks.park(waiter, wake_at)
            finally:
                del self._waiters[waiter]
            self._close_dead_connections()

    async def wait_finished(self) -> None:
        """Wait until the application asks past the batch in flight, or `wake` is called."""
        self._was_finished = trio.Event()
        await self._was_finished.wait()

    def wake(self) -> None:
        """Wake all waiting tasks, which check their conditions again."""
        self._arrived()
        self._was_finished.set()

    def _arrived(self) -> None:
        for waiter in self._waiters:
            waiter.wake()

    def pump(self) -> None:
        """Send the fetches that can be sent."""
        if not self._is_open:
            return
        now = self._now()
        self._pumps_at = now + _PUMP_S
        self._resumes_at = math.inf
        patience = self._config.fetch_max_wait + self._cluster.config.request_timeout
        self._keep_metadata_fresh(now)
        for fetch in self._fetch_state.plan(now, self._node_of, self._follower_of):
            connection = self._cluster.connection_nowait(fetch.node_id)
            assert connection is not None, "a fetch is planned for a node that can be reached"
            follower_patience = self._config.fetch_max_wait + _FOLLOWER_PATIENCE_S
            self._in_flight_fetches[fetch] = _InFlight(
                connection,
                now + patience,
                now + follower_patience if any(fetch.are_followed) else math.inf,
            )
            connection.submit(api.FETCH, fetch.request, partial(self._on_complete, fetch))
            if self._cluster.env.buggify("fetch abandoned"):
                connection.close()
        stale_topics = self._fetch_state.take_stale_topics()
        if stale_topics:
            self._cluster.request_refresh(stale_topics, because=self._fetch_state.last_refusal)
            self._fetch_state.last_refusal = None

    def _gauges(self) -> ConsumerGauges:
        """Return the state for `Client.statistics`; any thread may call this."""
        age_s = self._now() - self._polled_at
        return ConsumerGauges(
            assigned=Counter(tp.topic for tp in self.assignment),
            lags=self._fetch_state.lags(),
            prefetched_bytes=self._fetch_state.buffered_bytes,
            last_poll_age_s=0.0 if self._is_polled else max(age_s, 0.0),
        )

    def _pause(self) -> Awaitable[None] | None:
        return self._let_others_run() if self.is_starved() else None

    async def _let_others_run(self) -> None:
        """Let heartbeats and their replies pass although the program never awaits."""
        await trio.sleep(_PAUSE_S)
        if not self.may_hand_out():
            self.interrupt()

    def _finish(self) -> None:
        if self._in_flight_batch.finish():
            self._was_finished.set()

    def _ends(self, until: Until | None) -> Until | None:
        if until is None or not self._is_member:
            return until
        # Partitions of other members are theirs to finish.
        return {tp: end for tp, end in until.items() if tp in self._topic_ids}

    def _is_done(self, until: Until | None, ends: Until | None) -> bool:
        if until is None or ends is None or not self._fetch_state.is_done(ends):
            return False
        # A member without any of these partitions waits for an assignment.
        return bool(ends or not until) and self._staged.keys().isdisjoint(until)

    def _next_wake(self, now: float) -> float:
        expiries = [min(in_flight[1:]) for in_flight in self._in_flight_fetches.values()]
        return min((self._fetch_state.next_retry(now), self._resumes_at, *expiries))

    def _node_of(self, tp: TopicPartition) -> int | None:
        leader_id = self._cluster.metadata.leader_of(tp.topic, tp.partition)
        if leader_id is None:
            self._cluster.request_refresh([tp.topic])
        elif self._is_reading(self._cluster.connection_nowait(leader_id)):
            return leader_id
        return None

    def _is_reading(self, connection: RpcConnection | None) -> bool:
        """Return whether a broker can be reached and does not throttle fetches of this client."""
        if connection is None:
            return False
        resumes_at = connection.throttled_until(QuotaRate.FETCH_BYTES)
        if resumes_at <= self._now():
            return True
        self._resumes_at = min(self._resumes_at, resumes_at)
        return False

    def _follower_of(self, tp: TopicPartition) -> int | None:
        node_id = follower_to_read(self._cluster.metadata, tp, self._config)
        if node_id is None or not self._is_reading(self._cluster.connection_nowait(node_id)):
            return None
        return node_id

    def _keep_metadata_fresh(self, now: float) -> None:
        """Refresh the ISR regularly: no reply says that a follower is in sync again."""
        if self._config.read_from != "leader" and now >= self._refresh_at:
            self._refresh_at = now + _REFRESH_S
            self._cluster.request_refresh(tp.topic for tp in self._topic_ids)

    def _on_complete(self, fetch: Fetch, outcome: Outcome) -> None:
        in_flight = self._in_flight_fetches.pop(fetch, None)
        if in_flight is None:
            return  # It was abandoned.
        connection, now = in_flight.connection, self._now()
        if isinstance(outcome, Exception):
            self._fetch_state.on_failure(fetch, outcome, now)
        else:
            results = cast("FetchReply", outcome[0]).results
            try:
                problem = self._fetch_state.on_complete(fetch, results, outcome[1], now=now)
                if problem is not None:
                    connection.reject(api.FETCH, problem)
            except WireFormatError as error:
                wrong = connection.reject(api.FETCH, error)
                self._fetch_state.on_failure(fetch, wrong, now)
        self._arrived()
        self.pump()

    def _cluster_changed(self) -> None:
        for tp in self._topic_ids:
            leader_id = self._cluster.metadata.leader_of(tp.topic, tp.partition)
            error = self._cluster.lasting_wrong_reply(leader_id, [api.FETCH.key])
            if error is not None:
                self._fetch_state.fail(tp, copy(error))
        if self._is_member:  # A group revokes partitions of deleted topics.
            self._report_unknown_topics()
        else:
            self._fail_changed_topics()
        self._arrived()
        self.pump()

    def _report_unknown_topics(self) -> None:
        """Log that a topic is unknown now, once until it is known again."""
        metadata = self._cluster.metadata
        for name in {tp.topic for tp in self._topic_ids}:
            error = metadata.error(name)
            if error is None:
                self._unknown_topics.discard(name)
            elif name not in self._unknown_topics:
                self._unknown_topics.add(name)
                self._cluster.env.probe(
                    "group.topic_unknown", severity="warning", topic=name, reason=str(error)
                )

    def _fail_changed_topics(self) -> None:
        metadata = self._cluster.metadata
        for name in {tp.topic for tp in self._topic_ids}:
            error = metadata.error(name)
            topic = metadata.topic(name)
            if error is not None:
                self._fetch_state.topic_changed(name, None, error)
            elif topic is not None:
                self._fetch_state.topic_changed(
                    name,
                    topic.topic_id,
                    UnknownTopicError(
                        f"topic {name!r} was deleted, and another one of that name was created;"
                        f" assign its partitions to read it"
                    ),
                )

    def _close_dead_connections(self) -> None:
        now = self._now()
        for fetch, in_flight in list(self._in_flight_fetches.items()):
            if in_flight.expires_at <= now:
                in_flight.connection.close()
            elif in_flight.given_up_at <= now:
                del self._in_flight_fetches[fetch]
                silence = ConnectionLostError(f"node {fetch.node_id} does not answer")
                self._fetch_state.on_failure(fetch, silence, now)
                self.pump()


def follower_to_read(
    metadata: MetadataCache, tp: TopicPartition, config: ConsumerConfig
) -> int | None:
    """Return the follower to read a partition from, `None` to read it from the leader.

    Only in-sync replicas are chosen, according to the metadata: others may lag by any amount.
    """
    if config.read_from == "leader":
        return None
    leader_id = metadata.leader_of(tp.topic, tp.partition)
    known = [
        node_id
        for node_id in metadata.in_sync_replicas_of(tp.topic, tp.partition)
        if node_id in metadata.brokers
    ]
    if config.read_from == "nearest":
        known = [
            node_id for node_id in known if metadata.brokers[node_id].rack == config.client_rack
        ]
        if leader_id in known:
            return None
    followers = sorted(node_id for node_id in known if node_id != leader_id)
    # Partitions are spread over the followers; all readers of a partition share its page cache.
    return followers[tp.partition % len(followers)] if followers else None


def _always() -> bool:
    return True


def _never() -> bool:
    return False
