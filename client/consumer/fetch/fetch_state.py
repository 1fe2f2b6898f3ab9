"""Fetch state of a consumer: partitions, positions, and prefetched batches.

Pure: decides, given the time; no clock, no I/O.

Each partition has a `position`, the offset of the next record to hand out, and a `fetch_offset`,
where the next fetch begins. A partition is in at most one fetch at a time. At one broker, two
fetches may wait for new records, and a third is kept for partitions known to have more, so that
quiet partitions do not hold up busy ones.
"""

import math
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import final

import msgspec

from tidelog.client.cluster.backoff import Backoff
from tidelog.client.config import ConsumerConfig
from tidelog.client.consumer.fetch.chunk_memory import ChunkMemory
from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.consumer.fetch.offset_reset import is_fetch_retriable, no_position
from tidelog.client.consumer.fetch.read_epochs import ReadEpochs
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.metrics.counters import ConsumedCounters, ConsumerCounters
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import PRODUCED_COUNT_MAX
from tidelog.wire.errors import (
    BrokerError,
    CorruptRecordError,
    LogTruncatedError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch, PartitionFetched

_WAITING_FETCHES_MAX = 2
_FETCHES_MAX = 3
_PARTITIONS_MAX = 5_000
"""Maximum partitions of one fetch: the request must not be too long for the broker."""
_PARTITION_BYTES_MIN = 64 * 1024
_LEADER_S = 5.0
"""Seconds for which a partition is fetched from its leader after a follower failed; doubles each
time that happens again."""
_LEADER_DOUBLINGS_MAX = 4
_RECORDS_MAX = PRODUCED_COUNT_MAX
"""Maximum records to hand out at once: a `Record` with its numbers takes 150 bytes. A batch with
more, of a leader of an earlier version, is handed out in parts."""

Until = Mapping[TopicPartition, int]
"""Where to stop in each partition (exclusive end); other partitions are not read."""


def _no_follower(tp: TopicPartition) -> None:
    """Name no follower."""
    del tp


@final
class PartitionFetchState:
    """One partition that is read.

    Invariant: the records between `position` and `fetch_offset` are in memory.
    """

    def __init__(self, tp: TopicPartition, topic_id: bytes, counters: ConsumedCounters) -> None:
        """Start without a position."""
        self.at = tp
        self.counters = counters
        self.counted_offset = 0
        """Records below it were handed out and counted; a seek starts it again."""
        self.topic_id = topic_id
        self.position: int | None = None
        self.fetch_offset = 0
        self.epochs = ReadEpochs()
        """Leader epochs of the records before `fetch_offset`."""
        self.generation = 0
        """Rises whenever fetching restarts: replies to earlier fetches are dropped."""
        self.is_fetching = False
        self.has_failed = False
        """Whether an error waits to be raised; nothing is fetched until then."""
        self.buffered_bytes = 0
        self.high_watermark: int | None = None
        self.failure_count = 0
        self.retry_at = -math.inf
        self.leader_until = -math.inf
        """Time until which only the leader is asked."""
        self.follower_failure_count = 0
        """Consecutive fetches from a follower without success."""

    @property
    def has_more(self) -> bool:
        """Whether a fetch will find records, as far as is known."""
        return self.high_watermark is None or self.fetch_offset < self.high_watermark


@final
class Fetch:
    """Fetch request for one broker, with its partitions."""

    def __init__(
        self,
        node_id: int,
        partitions: list[PartitionFetchState],
        request: FetchRequest,
        *,
        sent_at: float,
    ) -> None:
        """Fetch these partitions, in this order."""
        self.node_id = node_id
        self.partitions = partitions
        self.request = request
        self.are_followed = [each.from_follower for each in request.partitions]
        """For each partition, whether the fetch goes to a follower."""
        self.generations = [partition.generation for partition in partitions]
        self.sent_at = sent_at
        """Monotonic seconds."""
        self.may_wait = not any(partition.has_more for partition in partitions)


class _Waiting(msgspec.Struct, frozen=True, eq=False):
    """Entry to hand out: batches still to be parsed, a batch given back, or an error."""

    partition: PartitionFetchState
    content: FetchedBatches | RecordBatch | Exception


@final
class FetchState:
    """All partitions that one consumer reads.

    Invariant: `buffered_bytes` is the size of all waiting chunks.
    """

    def __init__(
        self, config: ConsumerConfig, backoff: Backoff, counters: ConsumerCounters
    ) -> None:
        """Start without partitions."""
        self._counters = counters
        self.buffered_bytes = 0
        """Bytes of prefetched batches."""
        self.has_room = True
        """Whether memory was freed, or a fetch restarted, since the last `plan`."""
        self._config = config
        self._backoff = backoff
        self._partitions: dict[TopicPartition, PartitionFetchState] = {}
        self._order: dict[TopicPartition, None] = {}
        """Partitions in the order of their next turns in a fetch."""
        self._unplaced: dict[TopicPartition, None] = {}
        """Partitions without a position."""
        self._waiting: deque[_Waiting] = deque()
        self._memory = ChunkMemory(kept_bytes_max=config.prefetch_bytes)
        self._under_way: dict[int, list[Fetch]] = {}
        self._early_counts: dict[int, int] = {}
        """Consecutive empty replies by node that came long before the end of the wait."""
        self._stale_topics: set[str] = set()
        self.last_refusal: Exception | None = None
        """The error of the last fetch that is repeated."""

    @property
    def assignment(self) -> list[TopicPartition]:
        """Partitions that are read."""
        return list(self._partitions)

    @property
    def unplaced(self) -> list[TopicPartition]:
        """Partitions without a position."""
        return list(self._unplaced)

    @property
    def is_ready(self) -> bool:
        """Whether records or errors wait to be taken."""
        return bool(self._waiting or self._unplaced)

    def assign(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Read exactly these partitions; those that were read before keep their position."""
        kept = self._partitions
        self._partitions = {}
        for tp, topic_id in topic_ids.items():
            state = kept.pop(tp, None)
            if state is None or state.topic_id != topic_id:
                state = PartitionFetchState(tp, topic_id, self._counters.topics.of(tp.topic))
            self._partitions[tp] = state
        for dropped in kept.values():
            self._restart_fetching(dropped)
        self._order = dict.fromkeys(self._partitions)
        states = self._partitions.values()
        self._unplaced = {state.at: None for state in states if state.position is None}

    def position(self, tp: TopicPartition) -> int | None:
        """Return the offset of the next record to hand out, `None` without a position."""
        return self._state(tp).position

    def epochs(self, tp: TopicPartition) -> ReadEpochs:
        """Return the leader epochs of the records that were fetched."""
        return self._state(tp).epochs

    def seek(self, tp: TopicPartition, offset: int, leader_epoch: int | None = None) -> None:
        """Hand out the record at `offset` next.

        `leader_epoch` wrote the record below it, if that is known. Without it the broker does not
        compare its log with earlier records.
        """
        state = self._state(tp)
        state.position = state.counted_offset = offset
        self._unplaced.pop(tp, None)
        self._restart_fetching(state)
        state.epochs.restart(offset, leader_epoch)

    def fail(self, tp: TopicPartition, error: Exception) -> None:
        """Fail a partition that is waiting for records; taking raises the error."""
        state = self._state(tp)
        if state.position is not None and not state.has_failed:
            self._fail(state, error)

    def topic_changed(self, topic: str, topic_id: bytes | None, error: Exception) -> None:
        """Fail the partitions of a topic that was deleted or created again."""
        for state in self._partitions.values():
            if state.at.topic == topic and state.topic_id != topic_id and not state.has_failed:
                self._fail(state, error)

    def is_done(self, until: Until) -> bool:
        """Return whether everything before these ends was handed out."""
        positions = ((self._state(tp).position, end) for tp, end in until.items())
        return all(position is not None and position >= end for position, end in positions)

    def take(self, until: Until | None, now: float) -> RecordBatch | None:
        """Return the next records, `None` when there are none in memory.

        The position moves after them.

        Raises:
            NoPositionError: A partition has no position.
            TidelogError: A partition cannot be read; its position does not move.
        """
        for tp in self._unplaced:
            if until is None or tp in until:
                raise no_position(tp)
        place = 0
        while place < len(self._waiting):
            waiting = self._waiting[place]
            state = waiting.partition
            position = state.position
            assert position is not None, "only partitions with a position are fetched"
            end_offset = math.inf if until is None else until.get(state.at, 0)
            if position >= end_offset:
                place += 1
                continue
            if isinstance(waiting.content, Exception):
                self._restart_fetching(state)
                state.retry_at = now + self._backoff.delay(1)
                if isinstance(waiting.content, BrokerError):
                    waiting.content.at = state.at
                raise waiting.content
            batch = self._next_batch(place, state, position, now=now)
            if batch is not None:
                return self._hand_out(state, batch, end_offset)
        return None

    def give_back(self, batch: RecordBatch) -> None:
        """Take back unused records, and hand them out again first."""
        state = self._partitions.get(TopicPartition(batch.topic, batch.partition))
        if state is not None and state.position == batch.next_offset:
            state.position = batch.base_offset
            self._waiting.appendleft(_Waiting(state, batch))

    def plan(
        self,
        now: float,
        node_of: Callable[[TopicPartition], int | None],
        follower_of: Callable[[TopicPartition], int | None] = _no_follower,
    ) -> list[Fetch]:
        """Return the fetches to send now.

        Args:
            now: Monotonic seconds.
            node_of: Returns the leader of a partition if it can be reached.
            follower_of: Returns a reachable follower to read instead.
        """
        self.has_room = False
        states_by_node: dict[int, list[PartitionFetchState]] = {}
        followed: dict[TopicPartition, None] = {}
        for state in map(self._partitions.__getitem__, self._order):
            if self._may_fetch(state, now):
                node_id = follower_of(state.at) if now >= state.leader_until else None
                if node_id is not None:
                    followed[state.at] = None
                else:
                    node_id = node_of(state.at)
                if node_id is not None:
                    states_by_node.setdefault(node_id, []).append(state)
        fetches: list[Fetch] = []
        for node_id, states in states_by_node.items():
            under_way = self._under_way.setdefault(node_id, [])
            if sum(fetch.may_wait for fetch in under_way) >= _WAITING_FETCHES_MAX:
                states = [state for state in states if state.has_more]  # noqa: PLW2901
            states = self._first_of(states)  # noqa: PLW2901
            if states and len(under_way) < _FETCHES_MAX:
                request = self._request(states, followed)
                fetch = Fetch(node_id, states, request, sent_at=now)
                under_way.append(fetch)
                fetches.append(fetch)
                for state in states:
                    state.is_fetching = True
        return fetches

    def _first_of(self, states: list[PartitionFetchState]) -> list[PartitionFetchState]:
        """Return as many partitions as fit into one fetch; the next one begins with the others."""
        if len(states) > _PARTITIONS_MAX:
            states = states[:_PARTITIONS_MAX]
            for state in states:
                del self._order[state.at]
                self._order[state.at] = None
        return states

    def on_complete(
        self,
        fetch: Fetch,
        results: Sequence[PartitionFetched],
        attachment: memoryview,
        *,
        now: float,
    ) -> str | None:
        """Store the records of a fetch; `attachment` is copied.

        Return what is wrong with the batches of a partition, which is fetched again later.

        Raises:
            WireFormatError: The results do not belong to the fetch; nothing was stored.
        """
        total = 0
        for result in results:
            total += result.batch_bytes
        if len(results) != len(fetch.partitions) or total != len(attachment):
            raise WireFormatError(
                f"a fetch of {len(fetch.partitions)} partitions brought {len(results)} results"
                f" of {total} bytes in {len(attachment)} bytes"
            )
        pause_s = 0.0 if total else self._pause_after(fetch, results, now=now)
        if total and self._early_counts:
            self._early_counts.pop(fetch.node_id, None)
        problem: str | None = None
        start = 0
        for state, is_followed, result in zip(
            self._ended(fetch), fetch.are_followed, results, strict=True
        ):
            content = attachment[start : start + result.batch_bytes]
            start += result.batch_bytes
            if state is None:
                continue
            is_behind = result.error is not None or result.high_watermark < state.fetch_offset
            if is_followed and is_behind:
                self._ask_leader(state, now)
            elif result.error is not None:
                self._refused(state, from_wire(result.error), now)
            else:
                if is_followed:
                    state.follower_failure_count = 0
                wrong = self._fetched(state, content, result.high_watermark, now=now)
                problem = problem or wrong
                if pause_s and not content:
                    state.retry_at = now + pause_s
        return problem

    def on_failure(self, fetch: Fetch, error: Exception, now: float) -> None:
        """Schedule the retry of a failed fetch, or fail its partitions."""
        for state, is_followed in zip(self._ended(fetch), fetch.are_followed, strict=True):
            if state is not None and is_followed:
                self._ask_leader(state, now)
            elif state is not None:
                self._refused(state, error, now)

    def lags(self) -> dict[str, int]:
        """Return the records that the worst partition of each topic has not handed out.

        Only of partitions that were fetched. Any thread may call this.
        """
        found: dict[str, int] = {}
        for state in self._partitions.copy().values():
            position, high_watermark = state.position, state.high_watermark
            if position is not None and high_watermark is not None:
                lag = max(high_watermark - position, 0)
                found[state.at.topic] = max(found.get(state.at.topic, 0), lag)
        return found

    def take_stale_topics(self) -> set[str]:
        """Return topics with failures that newer metadata may cure."""
        stale, self._stale_topics = self._stale_topics, set()
        return stale

    def next_retry(self, now: float) -> float:
        """Return the monotonic time of the next retry, maybe inf."""
        found = math.inf
        for state in self._partitions.values():
            if not state.is_fetching and now < state.retry_at < found:
                found = state.retry_at
        return found

    def _state(self, tp: TopicPartition) -> PartitionFetchState:
        state = self._partitions.get(tp)
        if state is None:
            raise ValueError(f"{tp.topic}/{tp.partition} is not assigned to this consumer")
        return state

    def _next_batch(
        self, place: int, state: PartitionFetchState, position: int, *, now: float
    ) -> RecordBatch | None:
        """Return the next batch of the entry at `place`; remove an entry that is used up."""
        content = self._waiting[place].content
        if isinstance(content, RecordBatch):
            del self._waiting[place]
            return content
        assert isinstance(content, FetchedBatches)
        limit = self._config.max_uncompressed_batch_bytes
        try:
            batch = content.take(position, uncompressed_bytes_max=limit)
        except CorruptRecordError as error:
            self._restart_fetching(state)
            state.retry_at = now + self._backoff.delay(1)
            error.at = state.at
            raise
        if content.is_used_up:
            del self._waiting[place]
            self._release(state, content)
        if batch is None:
            state.position = max(position, content.passed_offset)
        return batch

    def _hand_out(
        self, state: PartitionFetchState, batch: RecordBatch, end_offset: float
    ) -> RecordBatch:
        try:
            end_offset = min(end_offset, batch.first(_RECORDS_MAX).next_offset)
        except CorruptRecordError:
            self._waiting.appendleft(_Waiting(state, batch))
            raise
        if batch.next_offset > end_offset:
            rest = batch.between(int(end_offset), None)
            self._waiting.appendleft(_Waiting(state, rest))
            batch = batch.between(batch.base_offset, int(end_offset))
        state.position = batch.next_offset
        if batch.base_offset >= state.counted_offset:  # Otherwise it was given back before.
            state.counted_offset = batch.next_offset
            state.counters.batches += 1
            state.counters.records += len(batch)
        return batch

    def _may_fetch(self, state: PartitionFetchState, now: float) -> bool:
        if state.position is None or state.is_fetching or state.has_failed or now < state.retry_at:
            return False
            # A partition without records in memory is always fetched, so that partitions which are
            # not read now cannot starve it.
        return state.buffered_bytes == 0 or (
            state.buffered_bytes < self._share()
            and self.buffered_bytes < self._config.prefetch_bytes
        )

    def _share(self) -> int:
        """Return how many bytes of one partition are prefetched."""
        return max(_PARTITION_BYTES_MIN, self._config.prefetch_bytes // len(self._partitions))

    def _request(
        self, states: list[PartitionFetchState], followed: Container[TopicPartition]
    ) -> FetchRequest:
        config = self._config
        max_bytes = min(config.max_partition_fetch_bytes, self._share())
        return FetchRequest(
            max_wait_ms=int(config.fetch_max_wait * 1000),
            min_bytes=config.fetch_min_bytes,
            max_bytes=config.fetch_max_bytes,
            partitions=[
                PartitionFetch(
                    state.topic_id,
                    state.at.partition,
                    state.fetch_offset,
                    max_bytes,
                    state.at in followed,
                    state.epochs.before(state.fetch_offset),
                )
                for state in states
            ],
        )

    def _ended(self, fetch: Fetch) -> Iterator[PartitionFetchState | None]:
        """Yield the partitions of a finished fetch, `None` for those that dropped it."""
        self._under_way[fetch.node_id].remove(fetch)
        for state, generation in zip(fetch.partitions, fetch.generations, strict=True):
            if state.generation == generation:
                state.is_fetching = False
                yield state
            else:
                yield None

    def _fetched(
        self, state: PartitionFetchState, content: memoryview, high_watermark: int, *, now: float
    ) -> str | None:
        """Store the batches of a partition; return what is wrong with them, if anything is."""
        state.high_watermark = high_watermark
        if not content:
            state.failure_count = 0
            if not self._waiting:  # The end of the logs: little will come at once.
                self._memory.clear()
            return None
        del self._order[state.at]
        self._order[state.at] = None
        copied = self._memory.copy(content)
        chunk = FetchedBatches(state.at, copied, high_watermark, topic_id=state.topic_id)
        next_offset = chunk.next_offset()
        what: str | None = None
        if next_offset is None:
            state.has_failed = True  # Taking the chunk will raise the error.
        else:
            what = chunk.mismatch(state.fetch_offset, next_offset)
        if what is not None:
            self._refused(state, WireFormatError(what), now)
            return f"{state.at.topic}/{state.at.partition}: {what}"
        state.failure_count = 0
        if next_offset is not None:
            state.fetch_offset = next_offset
            state.epochs.read(chunk.leader_epochs, next_offset)
        state.counters.fetched_bytes += chunk.size
        state.buffered_bytes += chunk.size
        self.buffered_bytes += chunk.size
        self._waiting.append(_Waiting(state, chunk))
        return None

    def _pause_after(
        self, fetch: Fetch, results: Sequence[PartitionFetched], *, now: float
    ) -> float:
        """Return the seconds before the next fetch if an empty reply came too early.

        A broker that always answers so would be asked as fast as it can answer.
        """
        wait_s = fetch.request.max_wait_ms / 1000
        is_early = wait_s == 0 or now < fetch.sent_at + wait_s / 2
        if not is_early or any(result.error is not None for result in results):
            self._early_counts.pop(fetch.node_id, None)
            return 0.0
        count = self._early_counts.get(fetch.node_id, 0) + 1
        self._early_counts[fetch.node_id] = count
        return self._backoff.delay(count if wait_s else 1)

    def _ask_leader(self, state: PartitionFetchState, now: float) -> None:
        """Fetch from the leader for a while: only the leader knows its log for certain."""
        doublings = min(state.follower_failure_count, _LEADER_DOUBLINGS_MAX)
        state.follower_failure_count += 1
        state.leader_until = now + _LEADER_S * 2**doublings
        self._stale_topics.add(state.at.topic)

    def _refused(self, state: PartitionFetchState, error: Exception, now: float) -> None:
        if is_fetch_retriable(error):
            state.failure_count += 1
            state.retry_at = now + self._backoff.delay(state.failure_count)
            self._stale_topics.add(state.at.topic)
            self.last_refusal = error
        else:
            if isinstance(error, LogTruncatedError):
                error = state.epochs.located(state.at, error)
            self._fail(state, error)

    def _fail(self, state: PartitionFetchState, error: Exception) -> None:
        state.has_failed = True
        self._waiting.append(_Waiting(state, error))

    def _restart_fetching(self, state: PartitionFetchState) -> None:
        """Drop prefetched records, and fetch again from the position on."""
        self.has_room = True
        state.generation += 1
        state.is_fetching = state.has_failed = False
        state.retry_at = -math.inf
        state.fetch_offset = state.position or 0
        state.epochs.cut(state.fetch_offset)
        self.buffered_bytes -= state.buffered_bytes
        state.buffered_bytes = 0
        self._waiting = deque(
            waiting for waiting in self._waiting if waiting.partition is not state
        )

    def _release(self, state: PartitionFetchState, chunk: FetchedBatches) -> None:
        self.has_room = True
        state.buffered_bytes -= chunk.size
        self.buffered_bytes -= chunk.size
