"""Task that reads a slice and yields Arrow batches.

Shell: connects the parts. Memory: one Arrow batch, one reply of the broker and one in flight.
"""

from collections.abc import Generator, Sequence
from typing import Final

import pyarrow as pa

from tidelog.spark_connector.arrow.record_batch_builder import RecordBatchBuilder
from tidelog.spark_connector.arrow.record_columns import of_origin
from tidelog.spark_connector.connection.pool import borrowed
from tidelog.spark_connector.read.columns import RECORD_COLUMNS
from tidelog.spark_connector.read.fetcher import RangeFetcher
from tidelog.spark_connector.read.large_messages import LargeMessageReader
from tidelog.spark_connector.read.offset_ranges import Slice
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.wire.batch.batch_columns import ColumnDecoder


def read_slice(
    options: ReadOptions, schema: pa.Schema, wanted: Slice
) -> Generator[pa.RecordBatch, None, None]:
    """Yield the records of a slice; closing the generator stops the fetcher.

    Raises:
        DataLossError: Some records are gone, and `failOnDataLoss` is true.
        CorruptRecordError: A batch is damaged; the error names topic, partition and offset.
        TidelogError: No broker answered in time.
    """
    rows = RecordBatchBuilder(schema)
    decoder = _decoder(schema.names)
    queue = options.selection.dead_letters_of
    joiner = LargeMessageReader(options, wanted) if options.large_messages == "join" else None
    with borrowed(options.connection) as cluster:
        fetcher = RangeFetcher(
            cluster,
            wanted,
            fail_on_data_loss=options.fail_on_data_loss,
            timeout_ms=options.fetch_timeout_ms,
        )
        try:
            for batch in fetcher.batches(decoder):
                for part in joiner.joined(batch) if joiner is not None else (batch,):
                    records = part if queue is None else of_origin(part, queue)
                    if records is not None and len(records):
                        rows.add(records)
                        if rows.is_full:
                            yield rows.take()
        finally:
            fetcher.close()
    if rows.row_count:
        yield rows.take()


_NONE: Final = ColumnDecoder(())
_HEADERS: Final = ColumnDecoder(["headers"])
_WITHOUT_HEADERS: Final = frozenset(RECORD_COLUMNS)


def _decoder(columns: Sequence[str]) -> ColumnDecoder:
    """Return the decoder of the record fields that these columns of Spark require.

    Most keys, values and timestamps become Arrow without being decoded.
    """
    return _NONE if _WITHOUT_HEADERS.issuperset(columns) else _HEADERS
