"""Fetcher of one offset range, one fetch ahead of its caller.

Shell: sends fetch requests to the leader. Memory: one reply of about `FETCH_BYTES`, or one batch if
that is larger, plus the part of the next reply that the connection holds. The fetcher yields views
into the reply, valid until the next batch is requested; their checksums are verified.
"""

import logging
import time
from collections.abc import Iterator
from typing import Final, NamedTuple, final

from tidelog.client.consumer.fetch.fetched_batches import FetchedBatches
from tidelog.client.consumer.fetch.read_epochs import ReadEpochs
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.spark_connector.connection.broker_connection import BrokerConnection
from tidelog.spark_connector.connection.cluster_client import (
    RETRIED_ERRORS,
    BlockingClusterClient,
)
from tidelog.spark_connector.connection.journals import is_journal
from tidelog.spark_connector.read.data_loss import lost
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.wire.batch.batch_columns import ALL_COLUMNS, ColumnDecoder
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import (
    CorruptRecordError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    TidelogError,
    UnknownQueueError,
    UnknownTopicError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.fetch import FetchRequest, PartitionFetch, PartitionFetched
from tidelog.wire.protocol import api

FETCH_BYTES: Final = 4 << 20
_FETCH_BYTES_MIN: Final = 64 << 10
_MAX_WAIT_MS: Final = 500
_UNCOMPRESSED_BYTES_MAX: Final = 256 << 20
"""The limit of the client's consumer, so that both read the same batches."""
_TRIES_MAX: Final = 3
"""Attempts to fetch a batch, which the network may have damaged, and to find a topic, which may be
so new that some brokers do not know it yet."""
_log = logging.getLogger(__name__)


class _Fetch(NamedTuple):
    """Fetch in flight."""

    connection: BrokerConnection
    offset: int
    sent_at: float


@final
class RangeFetcher:
    """Fetcher of the records of one slice."""

    def __init__(
        self,
        cluster: BlockingClusterClient,
        wanted: Slice,
        *,
        fail_on_data_loss: bool,
        timeout_ms: int,
    ) -> None:
        """Begin at the start; fail after `timeout_ms` without progress."""
        self._cluster = cluster
        self._wanted = wanted
        self._fail_on_data_loss = fail_on_data_loss
        self._timeout_s = timeout_ms / 1000
        self._from_journals = is_journal(wanted.topic)
        self._position: int = wanted.start
        self._epochs = ReadEpochs()
        self._epochs.restart(wanted.start, wanted.leader_epoch)
        self._was_truncated = False
        self._asked: _Fetch | None = None
        """Fetch in flight, if any."""
        self._bytes_per_offset = 0.0
        self._damaged_count = 0
        self._missing_count = 0
        self._failure: TidelogError | None = None
        """Error of the last fetch, if a later one may succeed."""
        self._failure_count = 0
        """Fetches since the last progress that failed, or were answered empty too early."""
        self._deadline = 0.0
        self._decoder = ALL_COLUMNS

    def batches(self, decoder: ColumnDecoder = ALL_COLUMNS) -> Iterator[RecordBatch]:
        """Yield all batches with records of the slice, cut to it.

        Without `failOnDataLoss`, the batches after a truncation of the log may begin before it.
        `decoder` decodes the columns that the caller probably reads.

        Raises:
            DataLossError: Some records are gone, and `failOnDataLoss` is true.
            CorruptRecordError: A batch is damaged.
            WireFormatError: The replies of a broker were wrong for `timeout_ms`.
            TidelogError: No broker answered for `timeout_ms`; the last failure.
        """
        self._decoder = decoder
        self._moved()
        while self._position < self._wanted.end:
            try:
                yield from self._fetch()
            except OffsetOutOfRangeError as error:
                self._skip_lost(error)
            except LogTruncatedError as error:
                self._go_back(error)
            except (UnknownTopicError, UnknownQueueError) as error:
                self._note_missing(error)
            except CorruptRecordError:
                self._damaged_count += 1
                if self._damaged_count >= _TRIES_MAX:
                    raise
            except RETRIED_ERRORS as error:
                self._failure = error
                self._wait_for_better()
            if self._position < self._wanted.end and time.monotonic() >= self._deadline:
                self._give_up()

    def close(self) -> None:
        """Stop without waiting for the fetch in flight."""
        if self._asked is not None:
            self._asked.connection.close()
            self._asked = None

    # -- one fetch ------------------------------------------------------------------------------

    def _fetch(self) -> Iterator[RecordBatch]:
        """Yield the batches of one reply while the next fetch is in flight."""
        if self._asked is None or self._asked.offset != self._position:
            self.close()
            self._epochs.cut(self._position)
            self._ask(self._leader(), self._position)
        assert self._asked is not None
        fetch, self._asked = self._asked, None
        chunk = self._received(fetch.connection)
        next_offset = chunk.next_offset()
        problem = None if next_offset is None else chunk.mismatch(self._position, next_offset)
        if problem is not None:
            raise self._wrong(fetch.connection, problem)
        self._failure = None
        if not chunk.size and time.monotonic() < fetch.sent_at + _MAX_WAIT_MS / 2000:
            self._pause()  # A broker that always answers so would be asked as fast as it can.
        if next_offset is not None:
            self._epochs.read(chunk.leader_epochs, next_offset)
            self._bytes_per_offset = chunk.size / (next_offset - self._position)
            if next_offset < self._wanted.end:
                self._ask(fetch.connection, next_offset)
        yield from self._taken(chunk)

    def _received(self, connection: BrokerConnection) -> FetchedBatches:
        """Return the batches of the reply to the fetch in flight."""
        try:
            reply, view = connection.receive(api.FETCH, timeout_s=self._cluster.request_timeout_s)
            (fetched,) = reply.results
            if fetched.error is not None:
                raise from_wire(fetched.error)
        except LogTruncatedError as error:
            if self._epochs.before(self._position) is None:  # Going back would never end.
                raise self._wrong(connection, f"{error}, for a fetch without an epoch") from error
            raise
        if fetched.batch_bytes != len(view):
            why = f"{fetched.batch_bytes} bytes of batches in {len(view)} bytes"
            raise self._wrong(connection, why)
        self._check_start(fetched, view)
        return FetchedBatches(self._wanted.at, view, fetched.high_watermark)

    def _leader(self) -> BrokerConnection:
        topic_id, connection = self._cluster.leader_of(self._wanted.at)
        if topic_id != self._wanted.topic_id:  # The cached metadata may be old.
            self._cluster.refresh([self._wanted.topic])
            topic_id, connection = self._cluster.leader_of(self._wanted.at)
        if topic_id != self._wanted.topic_id:
            raise UnknownTopicError(
                f"topic {self._wanted.topic!r} was deleted, and its name is that of another topic"
            )
        return connection

    def _taken(self, chunk: FetchedBatches) -> Iterator[RecordBatch]:
        end = self._wanted.end
        while self._position < end:
            batch = chunk.take(
                self._position,
                uncompressed_bytes_max=_UNCOMPRESSED_BYTES_MAX,
                decoder=self._decoder,
            )
            passed = min(max(self._position, chunk.passed_offset), end)
            cut = None if batch is None else batch.between(self._position, end)
            if passed > self._position:
                self._position = passed
                self._moved()
            if cut is None:
                return
            if cut.next_offset > cut.base_offset:
                yield cut
                self._moved()  # The caller may have processed the batch for long.

    def _moved(self) -> None:
        self._deadline = time.monotonic() + self._timeout_s
        self._damaged_count = self._missing_count = self._failure_count = 0

    def _ask(self, connection: BrokerConnection, offset: int) -> None:
        wanted = self._wanted
        # By the mean size so far, because records behind the end belong to other tasks.
        left_bytes = (wanted.end - offset) * self._bytes_per_offset or FETCH_BYTES
        max_bytes = int(min(max(left_bytes * 1.1, _FETCH_BYTES_MIN), FETCH_BYTES))
        asked = PartitionFetch(
            wanted.topic_id,
            wanted.partition,
            offset,
            max_bytes,
            last_fetched_epoch=self._epochs.before(offset),
        )
        request = FetchRequest(
            _MAX_WAIT_MS, 1, max_bytes, [asked], from_journals=self._from_journals
        )
        connection.send(api.FETCH, request)
        self._asked = _Fetch(connection, offset, time.monotonic())

    # -- errors ---------------------------------------------------------------------------------

    def _wrong(self, connection: BrokerConnection, why: str) -> WireFormatError:
        at = self._wanted.at
        return connection.reject(api.FETCH, f"{at.topic}/{at.partition}: {why}")

    def _check_start(self, fetched: PartitionFetched, view: memoryview) -> None:
        """Raise `OffsetOutOfRangeError` if the log has deleted the first requested records."""
        first = parse_header(view)
        begins_at = fetched.log_start_offset
        if begins_at > self._position and (first is None or first.base_offset > self._position):
            raise OffsetOutOfRangeError("the log begins later now", log_start_offset=begins_at)

    def _skip_lost(self, error: OffsetOutOfRangeError) -> None:
        wanted, position = self._wanted, self._position
        begins_at = error.log_start_offset or 0
        if begins_at > position:
            end = min(begins_at, wanted.end)
            what = f"{wanted}: offsets [{position}, {end}) are gone: the log begins at {begins_at}"
            self._position = end
        else:
            what = f"{wanted}: the log ends at {error.log_end_offset}, before {position}"
            self._position = wanted.end
        if self._fail_on_data_loss:
            raise lost(what) from error

    def _go_back(self, error: LogTruncatedError) -> None:
        """Continue at the first offset whose record was replaced, if data loss is accepted."""
        found = self._epochs.located(self._wanted.at, error)
        first, end = found.truncated_to or 0, found.fetch_offset
        what = (
            f"{self._wanted}: offsets [{first}, {end}) were read and are lost: the log has other"
            f" records there, or ends"
        )
        if self._fail_on_data_loss:
            raise lost(what) from error
        _log.warning("%s; reading goes on at offset %d", what, first)
        self.close()
        self._was_truncated = True
        self._position = first
        self._epochs.restart(first)
        self._moved()

    def _give_up(self) -> None:
        """Raise, or stop before the end of the slice if it was known before a truncation."""
        wanted = self._wanted
        if self._failure is not None:
            raise self._failure
        if not self._was_truncated:
            raise RequestTimedOutError(
                f"{wanted}: no record at offset {self._position} came in"
                f" {self._timeout_s:.0f} s (fetch.timeout.ms)"
            )
        _log.warning("%s: offsets [%d, %d) are lost", wanted, self._position, wanted.end)
        self._position = wanted.end

    def _note_missing(self, error: UnknownTopicError | UnknownQueueError) -> None:
        """Stop if the topic is gone; retry first, because a broker may not know a new topic yet."""
        self.close()
        self._missing_count += 1
        if self._missing_count < _TRIES_MAX:
            self._cluster.pause(self._missing_count)
            return
        if self._fail_on_data_loss:
            raise lost(f"{self._wanted}: {error}") from error
        self._position = self._wanted.end

    def _wait_for_better(self) -> None:
        """Wait and refresh the metadata on another connection: the leader may have changed."""
        self.close()
        if time.monotonic() < self._deadline:
            self._pause()
            self._cluster.retry(lambda: self._cluster.refresh([self._wanted.topic]))

    def _pause(self) -> None:
        """Wait before the next fetch, longer after each one without progress."""
        self._failure_count += 1
        self._cluster.pause(self._failure_count)
