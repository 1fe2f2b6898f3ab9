"""Planner of one streaming query: its initial position and the end of each batch.

Shell: asks brokers and waits; `spark_connector.read.stream_progress` decides. It exists in one
process for as long as the query, and holds no state that the checkpoint would need.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, final

from tidelog.spark_connector.connection.cluster_client import BlockingClusterClient
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.batch_plan import known_ranges
from tidelog.spark_connector.read.data_loss import lost
from tidelog.spark_connector.read.offset_commit import commit_group
from tidelog.spark_connector.read.offset_ranges import Offsets, StreamOffset
from tidelog.spark_connector.read.partition_bounds import PartitionRanges, look
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.starting_offsets import starting_offsets
from tidelog.spark_connector.read.stream_progress import (
    AvailableOffsets,
    available_offsets,
    bytes_between,
    limited,
    size_between,
    with_epochs,
    within,
)
from tidelog.wire.errors import TidelogError, UnknownTopicError

_REQUEST_INTERVAL_S: Final = 0.25
"""Least interval between requests: Spark polls an idle source thirty times a second. A refresh of
the offsets takes one request, except for dead letters and the history of a queue."""
_SIZES_INTERVAL_S: Final = 10.0
"""Age at which the sizes of partitions are requested again: the mean size of records moves slowly,
and a request with sizes takes half as long again."""
_COMMIT_RETRY_S: Final = 10.0
"""Time after a failed commit in which an idle query does not try again."""
_log = logging.getLogger(__name__)


@final
@dataclass(frozen=True, slots=True)
class Limit:
    """Limit of the next batch."""

    is_all: bool = False
    """Whether the options' limits do not apply: a query that is triggered once."""
    records: int | None = None
    size_bytes: int | None = None


ALL: Final = Limit(is_all=True)


@final
class StreamSource:
    """Planner of one query's batches."""

    def __init__(
        self,
        options: ReadOptions,
        *,
        now: Callable[[], float] = time.monotonic,
        wait: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create a planner without I/O; `now` and `wait` are in seconds."""
        self._options = options
        self._now = now
        self._wait = wait
        self._initial: StreamOffset | None = None
        self._is_moving = False
        """Whether the options would give another initial position after a restart."""
        self._is_first = True
        self._target: StreamOffset | None = None
        """End of the query, with `availableNow`."""
        self._ranges: PartitionRanges = {}
        self._looked_at: float | None = None
        self._request_count = 1
        """Requests of the last refresh."""
        self._has_byte_limit = options.max_bytes_per_trigger is not None
        self._sized: PartitionRanges = {}
        """Ranges of the last refresh with sizes."""
        self._sized_at = float("-inf")
        self._batch: tuple[Offsets, StreamOffset] | None = None
        """Begin and end of the last batch with records."""
        self._losses: set[str] = set()
        self._measured: dict[str, int] = {}
        self._measured_at: StreamOffset | None = None
        """Latest offset that the last metrics are about."""
        self._latest: StreamOffset | None = None
        self._fired_at = now()
        self._committed: StreamOffset | None = None
        """Position that the group has."""
        self._commits_from = now()
        self._told: set[str] = set()
        for line in options.ignored:
            self._warn(line)
        self._has_reached = False

    def initial(self) -> StreamOffset:
        """Return the initial position of the query; the same for each call.

        Raises:
            TidelogError: The options do not fit the partitions, or no broker answered.
        """
        if self._initial is None:
            options = self._options
            with self._reached() as cluster:
                ranges = known_ranges(cluster, options)
                offsets = starting_offsets(
                    cluster,
                    options.starting,
                    ranges,
                    strategy=options.starting_strategy,
                    now_ms=int(time.time() * 1000),
                )
            is_cut = options.starting.at in ("time", "times", "offset")
            is_at_an_end = any(offsets[at] == bounds.end for at, bounds in ranges.items())
            self._is_moving = options.starting.is_moving or (is_cut and is_at_an_end)
            ids = {at.topic: bounds.topic_id for at, bounds in ranges.items()}
            self._initial = StreamOffset(offsets, ids)
        return self._initial

    def prepare_available_now(self) -> None:
        """Set the end of the query to the current end of the partitions.

        Raises:
            TidelogError: No broker answered.
        """
        options = self._options
        with self._reached() as cluster:
            try:
                ranges = known_ranges(cluster, options)
            except UnknownTopicError:
                if options.fail_on_data_loss:
                    raise
                ranges = look(cluster, options.selection)  # Without the missing topics.
        self._target = available_offsets(StreamOffset({}, {}), ranges).end

    def latest(self, start: StreamOffset, limit: Limit) -> StreamOffset:
        """Return the end of the next batch; `start` if there is nothing to read yet.

        Spark asks for the next batch when the sink has written the last one, so all records below
        `start` are written. If there is a next batch, Spark then calls `commit(start)`. If not, the
        group learns the position here: Spark never calls `commit` for the last batch of a run.

        Raises:
            DataLossError: Unread records are gone, and `failOnDataLoss` is true.
            TidelogError: No broker answered.
        """
        end = self._next(start, limit)
        if end == start and self._now() >= self._commits_from:
            self.commit(start)
        return end

    def _next(self, start: StreamOffset, limit: Limit) -> StreamOffset:
        if limit.size_bytes is not None and not self._has_byte_limit:
            self._has_byte_limit, self._looked_at = True, None
        is_first, self._is_first = self._is_first, False
        if is_first and self._is_moving and start == self._initial:
            # An empty batch makes Spark checkpoint the initial position, so a crash in the first
            # batch with records cannot move it.
            return start
        found = self._available_offsets(start)
        end = found.end
        if self._target is not None:
            end = within(end, self._target, start)
        elif not limit.is_all and self._is_too_little(found, end):
            return start
        end = self._limited(found, end, limit)
        if end == start:
            return start
        self._fired_at = self._now()
        self._batch = found.begin, end
        return with_epochs(end, start, self._ranges)

    def reported(self) -> StreamOffset | None:
        """Return the end offsets of the last refresh."""
        return self._latest

    def metrics(self) -> dict[str, int]:
        """Return what only the planner knows, for progress reports; none before a refresh.

        Bytes are on disk, estimated by the mean size of the records of each partition.

        - `batchBytes`: of the last batch with records.
        - `bytesBehindLatest`: after that batch.
        - `dataLosses`: losses since the start of the query that `failOnDataLoss=false` passed over.
        """
        latest = self._latest
        if latest is None:
            return {}
        if latest is not self._measured_at:  # Spark asks thirty times a second.
            begin, end = (latest.offsets, latest) if self._batch is None else self._batch
            self._measured_at = latest
            self._measured = {
                "batchBytes": bytes_between(begin, end.offsets, self._sized),
                "bytesBehindLatest": bytes_between(end.offsets, latest.offsets, self._sized),
            }
        return {**self._measured, "dataLosses": len(self._losses)}

    def commit(self, end: StreamOffset) -> None:
        """Commit the position to the group, once; a failure does not stop the query."""
        if end == self._committed:
            return
        try:
            commit_group(self._options, end)
            self._committed = end
        except TidelogError as error:
            self._commits_from = self._now() + _COMMIT_RETRY_S
            self._warn(f"the offsets of the group were not committed: {error}")

    @contextmanager
    def _reached(self) -> Iterator[BlockingClusterClient]:
        """Lend a cluster client; the first time it has reached a broker, or fails soon."""
        with borrowed(self._options.connection) as cluster:
            if not self._has_reached:
                cluster.reach()
                self._has_reached = True  # From now on the query waits for its brokers.
            yield cluster

    # -- offsets ---------------------------------------------------------------------------------

    def _available_offsets(self, start: StreamOffset) -> AvailableOffsets:
        is_fresh = self._refresh_ranges()
        found = available_offsets(start, self._ranges)
        if found.end == start and not is_fresh:
            self._refresh_ranges(wait=True)
            found = available_offsets(start, self._ranges)
        may_come = self._is_news(found) and self._is_a_topic_gone(start)
        for _ in range(self._options.retry_count if may_come else 0):
            # A broker may not know all topics yet, which is no loss.
            self._wait(self._options.retry_interval_ms / 1000)
            self._refresh_ranges(wait=True)
            found = available_offsets(start, self._ranges)
        self._latest = found.end
        if found.losses:
            if self._options.fail_on_data_loss:
                raise lost("; ".join(found.losses))
            self._losses |= set(found.losses)
            for line in found.losses:
                self._warn(line)
        return found

    def _refresh_ranges(self, *, wait: bool = False) -> bool:
        """Refresh the ranges after the least interval; return whether a request was sent."""
        if self._looked_at is not None:
            interval_s = self._request_count * _REQUEST_INTERVAL_S
            left_s = self._looked_at + interval_s - self._now()
            if left_s > 0 and not wait:
                return False
            self._wait(max(left_s, 0))
        with self._reached() as cluster:
            sent_before = cluster.sent_count
            selection = self._options.selection
            is_old = self._now() - self._sized_at >= _SIZES_INTERVAL_S
            had_records = any(bounds.size_bytes for bounds in self._sized.values())
            with_sizes = self._has_byte_limit or is_old or not had_records
            self._ranges = look(cluster, selection, with_sizes=with_sizes)
            self._request_count = max(cluster.sent_count - sent_before, 1)
        self._looked_at = self._now()
        if with_sizes:
            self._sized, self._sized_at = self._ranges, self._looked_at
        return True

    def _is_too_little(self, found: AvailableOffsets, end: StreamOffset) -> bool:
        wanted = self._options.min_offsets_per_trigger
        if wanted is None or size_between(found.begin, end) >= wanted:
            return False
        delay_s = self._options.max_trigger_delay_ms / 1000
        return self._now() - self._fired_at < delay_s

    def _limited(self, found: AvailableOffsets, end: StreamOffset, limit: Limit) -> StreamOffset:
        if limit.is_all:
            return end
        shares: list[tuple[int, int]] = []
        records = limit.records or self._options.max_offsets_per_trigger
        if records is not None:
            shares.append((records, size_between(found.begin, end)))
        size_bytes = limit.size_bytes or self._options.max_bytes_per_trigger
        if size_bytes is not None:
            total = bytes_between(found.begin, end.offsets, self._ranges)
            shares.append((size_bytes, total))
        shares = [share for share in shares if share[0] < share[1]]
        if not shares:
            return end
        numerator, denominator = min(shares, key=lambda share: share[0] / share[1])
        return limited(found.begin, end, numerator=numerator, denominator=denominator)

    def _is_a_topic_gone(self, start: StreamOffset) -> bool:
        return not {at.topic for at in start.offsets} <= {at.topic for at in self._ranges}

    def _is_news(self, found: AvailableOffsets) -> bool:
        return any(line not in self._told for line in found.losses)

    def _warn(self, line: str) -> None:
        if line not in self._told:
            self._told.add(line)
            _log.warning("%s", line)
