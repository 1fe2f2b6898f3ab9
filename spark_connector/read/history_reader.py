"""Task that reads a slice of a queue's history.

Shell: connects the parts. It reads from the snapshot before its slice, because the holder and the
receive count of a message follow from earlier entries, and yields only events of its slice.
"""

from collections.abc import Generator, Iterator
from typing import Final, final

import pyarrow as pa

from tidelog.client.queue.inspect.history import QueueHistory
from tidelog.spark_connector.arrow.history_batch_builder import HistoryBatchBuilder
from tidelog.spark_connector.connection.journals import queue_of
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.fetcher import RangeFetcher
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.batch.batch_columns import ColumnDecoder
from tidelog.wire.errors import CorruptRecordError, WireFormatError
from tidelog.wire.messages.offset_ranges import OffsetQuery
from tidelog.wire.messages.queue_journal import JournalFrame, decode

_VALUES: Final = ColumnDecoder({"values"})


def read_history(
    options: ReadOptions, schema: pa.Schema, wanted: Slice
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the events in a slice of the journal.

    Raises:
        DataLossError: A part of the slice is gone, and `failOnDataLoss` is true.
        CorruptRecordError: An entry is damaged, or a newer version wrote it.
        TidelogError: No broker answered in time.
    """
    rows = HistoryBatchBuilder(
        schema, queue_of(wanted.topic), wanted.partition, name_of=_Names(options)
    )
    history = QueueHistory()
    for _, frame in _frames(options, _before(options, wanted), fail_on_data_loss=False):
        history.pass_over(frame)
    for offset, frame in _frames(options, wanted, fail_on_data_loss=options.fail_on_data_loss):
        for event in history.events(offset, frame):
            rows.add(event)
            if rows.is_full:
                yield rows.take()
    if rows.row_count:
        yield rows.take()


def _before(options: ReadOptions, wanted: Slice) -> Slice:
    """Return the range from the last snapshot, or from the log start, to the slice."""
    begin: int | None = None
    for _, frame in _frames(options, wanted.between(wanted.start, wanted.start + 1)):
        begin = frame.snapshot_offset
    if begin is None:
        query = OffsetQuery(wanted.topic_id, wanted.partition)
        with borrowed(options.connection) as cluster:
            begin = cluster.list_offsets({wanted.at: query})[wanted.at].log_start_offset
    return wanted.between(min(begin, wanted.start), wanted.start)


def _frames(
    options: ReadOptions, wanted: Slice, *, fail_on_data_loss: bool = False
) -> Iterator[tuple[int, JournalFrame]]:
    with borrowed(options.connection) as cluster:
        fetcher = RangeFetcher(
            cluster,
            wanted,
            fail_on_data_loss=fail_on_data_loss,
            timeout_ms=options.fetch_timeout_ms,
        )
        try:
            for batch in fetcher.batches(_VALUES):
                for offset, value in zip(batch.offsets, batch.values, strict=True):
                    yield offset, _decoded(wanted, offset, value)
        finally:
            fetcher.close()


def _decoded(wanted: Slice, offset: int, value: bytes | None) -> JournalFrame:
    try:
        return decode(value or b"")
    except WireFormatError as error:
        raise CorruptRecordError(
            f"{wanted.topic}/{wanted.partition}: offset {offset}: {error}",
            offset=offset,
            next_offset=offset + 1,
        ) from error


@final
class _Names:
    """Names of topics by id, fetched at the first use."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._known: dict[bytes, str] = {}

    def __call__(self, topic_id: bytes) -> str:
        """Return the name of a topic; its id in hexadecimal digits if it is gone."""
        if topic_id not in self._known:
            with borrowed(self._options.connection) as cluster:
                found = cluster.topic_offsets(None)
            self._known |= {topic.topic_id: topic.name for topic in found}
        return self._known.setdefault(topic_id, topic_id.hex())
