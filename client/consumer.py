"""Reading records.

Shell: sends the fetches that the subscription plans, hands it the replies, and lets callers wait.
No task of its own: a reply is taken over and the next fetch sent in the task of the connection
that brought it, so fetching goes on while the application works on earlier records.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import cast, final

import trio

from client.cluster import Cluster
from client.config import ConsumerConfig
from client.metadata import TopicPartition, partition_of
from client.offsets import OffsetPlace, list_offsets
from client.record import RecordBatch
from client.record_iterator import BatchIterator, RecordCursor, RecordIterator
from client.subscription import Fetch, Subscription, Until
from wire import api
from wire.errors import BrokerError, UnknownTopicError, WireFormatError
from wire.fetch import FetchReply
from wire.rpc import Outcome, RpcConnection


@final
class Consumer:
    """Reads partitions, each in the order of its offsets.

    `async for record in consumer` reads record by record and `batches()` batch by batch, which is
    several times faster. Both wait for new records for ever, unless they are told where to stop.
    They may be left and started again at any time, also in the middle of a batch: `position` says
    what comes next. Only one of them is in use at a time: starting another ends it.

    An error leaves the position where it was, so that the same call may be repeated, or another
    position be sought. While a broker cannot be reached, the consumer waits and tries again; use
    `trio.fail_after` to give up.
    """

    def __init__(
        self,
        cluster: Cluster,
        topics: Sequence[str],
        partitions: Sequence[int] | None,
        config: ConsumerConfig,
    ) -> None:
        """Use `async with client.consumer(...)`."""
        self.config = config
        self._cluster = cluster
        self._topics = topics
        self._chosen_partitions = partitions
        self._subscription = Subscription(config, cluster.backoff)
        self._flights: dict[Fetch, tuple[RpcConnection, float]] = {}
        """Fetches under way: over which connection, and when that counts as dead."""
        self._arrival = trio.Event()
        self._is_open = False
        self._cursor = RecordCursor()

    async def __aenter__(self) -> "Consumer":
        """Find the partitions, and where to start.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: The topic does not have a partition that was asked for.
            TidelogError: Brokers could not be asked.
        """
        assert not self._is_open, "a consumer is opened once"
        self._is_open = True
        self._cluster.subscribe(self._cluster_changed)
        try:
            await self.assign(await self._initial_assignment())
        except BaseException:
            self._close()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Stop reading."""
        await trio.lowlevel.checkpoint()
        self._close()

    def __aiter__(self) -> RecordIterator:
        """Iterate over records, for ever."""
        return self.records()

    @property
    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read."""
        return self._subscription.assignment

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions; those that were read before keep their position.

        The others start where `auto_offset_reset` says, or wait for a `seek`. If cancelled, the
        old assignment may be replaced already.

        Raises:
            UnknownTopicError: There is no such topic.
            UnknownPartitionError: A topic does not have the partition.
            TidelogError: Brokers could not be asked.
        """
        topic_ids: dict[TopicPartition, bytes] = {}
        for name, partition in partitions:
            topic = await self._cluster.topic(name)
            partition_of(topic, partition)
            topic_ids[TopicPartition(name, partition)] = topic.topic_id
        self._stop_reader()
        self._subscription.assign(topic_ids)
        if self.config.auto_offset_reset is not None:
            await self._seek_to(self._subscription.unplaced, self.config.auto_offset_reset)
        self._pump()

    def seek(self, topic: str, partition: int, offset: int) -> None:
        """Go on with the record at `offset` of a partition; what was fetched ahead is dropped.

        Raises:
            ValueError: The partition is not assigned, or the offset is negative.
        """
        if offset < 0:
            raise ValueError(f"offset {offset} is negative; the first offset is 0")
        self._stop_reader()
        self._subscription.seek(TopicPartition(topic, partition), offset)

    async def seek_to_beginning(self) -> None:
        """Go on with the first record of every partition. If cancelled, nothing happens."""
        await self._seek_to(self.assignment, "earliest")

    async def seek_to_end(self) -> None:
        """Go on with what is appended from now on. If cancelled, nothing happens."""
        await self._seek_to(self.assignment, "latest")

    async def seek_to_time(self, timestamp_ms: int) -> None:
        """Go on with the first record of this time (Unix milliseconds) or later.

        A partition without such a record goes on at its end. If cancelled, nothing happens.
        """
        await self._seek_to(self.assignment, timestamp_ms)

    def position(self, topic: str, partition: int) -> int | None:
        """Return the offset of the next record to hand out, `None` when there is no position.

        Raises:
            ValueError: The partition is not assigned.
        """
        at = TopicPartition(topic, partition)
        rest = self._cursor.rest()
        if rest is not None and (rest.topic, rest.partition) == at:
            return rest.base_offset
        return self._subscription.position(at)

    async def beginning_offsets(self) -> dict[TopicPartition, int]:
        """Return the first readable offset of every partition."""
        return await self._offsets(self.assignment, "earliest")

    async def end_offsets(self) -> dict[TopicPartition, int]:
        """Return the offset that the next readable record of every partition will have.

        To read what is there now and then stop: `consumer.batches(await consumer.end_offsets())`.
        """
        return await self._offsets(self.assignment, "latest")

    def records(self, until: Until | None = None) -> RecordIterator:
        """Iterate over records; see `batches` for what `until` means and what is raised."""
        self._stop_reader()
        self._cursor = RecordCursor()
        return RecordIterator(partial(self._take, until), self.give_back, self._cursor)

    def batches(self, until: Mapping[TopicPartition, int] | None = None) -> BatchIterator:
        """Iterate over batches, from the position of each partition on.

        Args:
            until: Where to stop in each partition (exclusive end); partitions that are not
                mentioned are left alone. `None` goes on for ever.

        Iterating raises:
            NoPositionError: A partition has no position.
            OffsetOutOfRangeError: The position is not in the log; the error has both bounds.
            CorruptRecordError: A batch is damaged; the error says which, and where to `seek` to
                skip it. Like every error of a broker, it has the topic and the partition in `at`.
            UnknownTopicError: A topic was deleted.
            TidelogError: A partition cannot be read for another reason.
        """
        self._stop_reader()
        return BatchIterator(partial(self._take, until))

    def give_back(self, batch: RecordBatch) -> None:
        """Take back the batch handed out last, or its end; it will be handed out again next.

        For programs that used a part of a batch: `consumer.give_back(batch.between(offset, None))`.
        """
        self._subscription.give_back(batch)

    async def _initial_assignment(self) -> list[TopicPartition]:
        found: list[TopicPartition] = []
        for name in self._topics:
            topic = await self._cluster.topic(name)
            chosen = self._chosen_partitions
            partitions = range(len(topic.partitions)) if chosen is None else chosen
            found.extend(TopicPartition(name, partition) for partition in partitions)
        return found

    async def _seek_to(self, partitions: Sequence[TopicPartition], place: OffsetPlace) -> None:
        offsets = await self._offsets(partitions, place)
        self._stop_reader()
        for at, offset in offsets.items():
            self._subscription.seek(at, offset)

    async def _offsets(
        self, partitions: Sequence[TopicPartition], place: OffsetPlace
    ) -> dict[TopicPartition, int]:
        await trio.lowlevel.checkpoint()
        found = await list_offsets(self._cluster, dict.fromkeys(partitions, place))
        offsets = {at: answer.offset for at, answer in found.items() if answer.offset is not None}
        missing = [at for at in partitions if at not in offsets]
        if missing:  # No record is that young.
            offsets |= await self._offsets(missing, "latest")
        return offsets

    async def _take(self, until: Until | None) -> RecordBatch | None:
        """Return the next records, `None` when all before `until` were handed out."""
        await trio.lowlevel.checkpoint()
        while True:
            if not self._is_open:
                raise trio.ClosedResourceError("use 'async with client.consumer(...) as consumer'")
            now = trio.current_time()
            batch = self._subscription.take(until, now)
            self._pump()
            if batch is not None or (until is not None and self._subscription.is_done(until)):
                return batch
            self._arrival = trio.Event()
            with trio.CancelScope(deadline=self._next_wake(now)):
                await self._arrival.wait()
            self._close_dead_connections()

    def _stop_reader(self) -> None:
        rest = self._cursor.stop()
        if rest is not None:
            self._subscription.give_back(rest)

    def _next_wake(self, now: float) -> float:
        expiries = [expires_at for _, expires_at in self._flights.values()]
        return min((self._subscription.next_retry(now), *expiries))

    def _pump(self) -> None:
        """Send the fetches that can be sent."""
        if not self._is_open:
            return
        now = trio.current_time()
        patience = self.config.max_wait + self._cluster.config.request_timeout
        for fetch in self._subscription.plan(now, self._node_of):
            connection = self._cluster.connection_nowait(fetch.node_id)
            assert connection is not None, "a fetch is planned for a node that can be reached"
            self._flights[fetch] = (connection, now + patience)
            connection.submit(api.FETCH, fetch.request, partial(self._landed, fetch))
            if self._cluster.env.buggify("fetch given up"):
                connection.close()
        stale_topics = self._subscription.take_stale_topics()
        if stale_topics:
            self._cluster.request_refresh(stale_topics)

    def _node_of(self, at: TopicPartition) -> int | None:
        leader_id = self._cluster.metadata.leader_of(at.topic, at.partition)
        if leader_id is None:
            self._cluster.request_refresh([at.topic])
        elif self._cluster.connection_nowait(leader_id) is not None:
            return leader_id
        return None

    def _landed(self, fetch: Fetch, outcome: Outcome) -> None:
        connection, _ = self._flights.pop(fetch)
        now = trio.current_time()
        if isinstance(outcome, Exception):
            self._subscription.failed(fetch, outcome, now)
        elif isinstance(outcome[0], BrokerError):
            self._subscription.failed(fetch, outcome[0], now)
        else:
            results = cast("FetchReply", outcome[0]).results
            try:
                self._subscription.landed(fetch, results, outcome[1], now)
            except WireFormatError as error:
                connection.close()
                self._subscription.failed(fetch, error, now)
        self._arrival.set()
        self._pump()

    def _cluster_changed(self) -> None:
        metadata = self._cluster.metadata
        for name in {at.topic for at in self.assignment}:
            error = metadata.error(name)
            topic = metadata.topic(name)
            if error is not None:
                self._subscription.topic_changed(name, None, error)
            elif topic is not None:
                self._subscription.topic_changed(
                    name,
                    topic.topic_id,
                    UnknownTopicError(
                        f"topic {name!r} was deleted, and another one of that name was created;"
                        f" assign its partitions to read it"
                    ),
                )
        self._arrival.set()
        self._pump()

    def _close_dead_connections(self) -> None:
        now = trio.current_time()
        for connection, expires_at in list(self._flights.values()):
            if expires_at <= now:
                connection.close()

    def _close(self) -> None:
        self._is_open = False
        self._arrival.set()
        self._cluster.unsubscribe(self._cluster_changed)
