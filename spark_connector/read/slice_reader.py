"""What a task does: read its slice and yield it as Arrow batches.

Shell: puts the parts together. Nothing is kept but one Arrow batch, one answer of the broker and
what is on its way.
"""

from collections.abc import Iterator, Sequence
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


def read_slice(options: ReadOptions, schema: pa.Schema, wanted: Slice) -> Iterator[pa.RecordBatch]:
    """Yield the records of a slice; whoever takes no more of them stops the reading.

    Raises:
        DataLossError: Some are gone, and that matters.
        CorruptRecordError: A batch is damaged; the error names topic, partition and offset.
        TidelogError: Nobody could be asked in time.
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
                records = joiner.joined(batch) if joiner is not None else batch
                if records is not None and queue is not None:
                    records = of_origin(records, queue)
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
    """Return what decodes at once what some columns of Spark need in any case.

    Most keys, values and times are made into Arrow without being decoded.
    """
    return _NONE if _WITHOUT_HEADERS.issuperset(columns) else _HEADERS
