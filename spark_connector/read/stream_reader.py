"""Stream reader of Spark's DataSource API."""

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from tidelog.spark_connector.one_line import in_one_line
from tidelog.spark_connector.read.batch_reader import Decode, read_partition
from tidelog.spark_connector.read.offset_commit import group_of
from tidelog.spark_connector.read.offset_ranges import GROUP, METRICS, StreamOffset, split
from tidelog.spark_connector.read.read_options import ReadOptions
from tidelog.spark_connector.read.stream_progress import slices_between
from tidelog.spark_connector.read.stream_source import ALL, Limit, StreamSource
from tidelog.wire.errors import TidelogError


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream's batches; Spark creates one in the driver and one in each task."""

    def __init__(
        self, options: ReadOptions, columns: Sequence[str], decode: Decode | None = None
    ) -> None:
        """Create a reader of these columns; Spark sends copies to the tasks."""
        self._options = options
        self._columns = tuple(columns)
        self._decode = decode
        self._source: StreamSource | None = None
        self._answered: tuple[dict[str, Any], StreamOffset] | None = None
        """The last reply of `latestOffset`, which is mostly the start of the next call."""

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Return the initial position of the query."""
        return self._planner().initial().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Return the limit of a batch; Spark replaces it for a query that is triggered once."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Return the end of the next batch; `start` if there is nothing to read yet."""
        answered = self._answered
        is_same = answered is not None and answered[0] == start
        begin = answered[1] if answered is not None and is_same else StreamOffset.from_json(start)
        end = self._planner().latest(begin, _limit(limit))
        text = start if end == begin else end.to_json()
        self._answered = text, end
        return text

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Return the end offsets of the partitions, group and metrics, for progress reports."""
        latest = self._planner().reported()
        if latest is None:
            return None
        report = {**latest.to_json(), METRICS: self._planner().metrics()}
        group = group_of(self._options)
        if group is not None:
            brokers = ",".join(map(str, self._options.connection.addresses))
            report[GROUP] = {"name": group, "brokers": brokers}
        return report

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Set the end of the query to the current end of the partitions."""
        self._planner().prepare_available_now()

    @in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return one partition for each task of a batch; the same for a repeated batch."""
        slices = slices_between(StreamOffset.from_json(start), StreamOffset.from_json(end))
        parts = split(
            slices,
            records_max=self._options.max_records_per_partition,
            min_partitions=self._options.min_partitions,
        )
        return [InputPartition(part) for part in parts]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of one task."""
        return read_partition(self._options, self._columns, partition, decode=self._decode)

    def commit(self, end: dict[str, Any]) -> None:
        """Commit the end of a batch to the group, if there is one."""
        self._planner().commit(StreamOffset.from_json(end))

    def stop(self) -> None:
        """Do nothing: Spark does not call it, and the reader holds no resources."""

    def _planner(self) -> StreamSource:
        if self._source is None:
            self._source = StreamSource(self._options)
        return self._source


class RefusedStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of a stream whose options are refused: it raises the error at the first call.

    The runner of pyspark 4.3 replaces an error of `streamReader` by an `UnboundLocalError` of its
    own, and reports an error of a reader as it is.
    """

    def __init__(self, error: TidelogError) -> None:
        """Create a reader that raises `error`."""
        self._error = error

    @in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Raise the error."""
        raise self._error

    @in_one_line()
    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Raise the error."""
        raise self._error

    @in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        raise self._error

    @in_one_line()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """Raise the error."""
        del start, limit
        raise self._error

    @in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Raise the error."""
        del start, end
        raise self._error

    @in_one_line()
    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Raise the error."""
        del partition
        raise self._error


def _limit(limit: ReadLimit) -> Limit:
    if isinstance(limit, ReadMaxRows):
        return Limit(records=limit.max_rows)
    if isinstance(limit, ReadMaxBytes):
        return Limit(size_bytes=limit.max_bytes)
    return Limit() if isinstance(limit, ReadMinRows) else ALL
