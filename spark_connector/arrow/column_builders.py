"""Builders of Arrow columns from record batches.

Pure: no clock, no I/O. Imports pyarrow, so only readers import it. Per-record work runs in C: keys,
values and timestamps of batches of format 2 go from the payload to Arrow without Python objects.
Their lengths become Arrow's offsets by a cumulative sum.
"""

from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, Protocol, final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark_connector.arrow.record_columns import RecordColumns
from tidelog.wire.batch.byte_column import ByteColumn
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import TidelogError

ROWS_MAX: Final = 16_384
"""Rows of one Arrow batch: enough to spread the cost of a batch, few enough for memory."""
TIME: Final = pa.timestamp("us", tz="UTC")
_TIME_IN_MS: Final = pa.timestamp("ms", tz="UTC")
_TIME_MAX_MS: Final = ((1 << 63) - 1) // 1000
_COUNTED: Final = pa.array(range(ROWS_MAX), pa.int64())
_NUMBER_BYTES: Final = 8
_KINDS: Final[Mapping[str, pa.DataType]] = {
    "B": pa.uint8(),
    "H": pa.uint16(),
    "I": pa.uint32(),
    "b": pa.int8(),
    "h": pa.int16(),
    "i": pa.int32(),
    "q": pa.int64(),
}
"""Arrow types by the type codes of `array`, for numbers of their exact size."""
_BLOB_BYTES: Final = 64 << 10
"""Bytes of the first buffer of a column."""
_SPARE_BYTES_MAX: Final = 8 << 20
"""Maximum bytes of a buffer before its content comes: a single large batch is an exception."""
_ZERO: Final = pa.array([0], pa.int32())


@final
class UnfitTimeError(TidelogError):
    """A timestamp of a record has no value in Spark, which counts microseconds in 64 bits."""


class ColumnBuilder(Protocol):
    """Builder of one Arrow column."""

    def add(self, records: RecordColumns) -> int:
        """Add the column of these records; return its approximate size in bytes."""
        ...

    def take(self) -> pa.Array:
        """Return the column and reset the builder."""
        ...


@final
class ChunkedBuilder:
    """Column with a value for each record, built as one array per record batch."""

    def __init__(self, make: Callable[[RecordColumns], pa.Array]) -> None:
        """Create a builder; `make` returns the array of a record batch."""
        self._make = make
        self._pieces: list[pa.Array] = []

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        piece = self._make(records)
        self._pieces.append(piece)
        return piece.nbytes

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`."""
        whole = _joined(self._pieces)
        self._pieces = []
        return whole


@final
class RunBuilder:
    """Column whose value is the same for all records of a batch, and mostly beyond it."""

    def __init__(self, value_of: Callable[[RecordColumns], object], kind: pa.DataType) -> None:
        """Create a builder; `value_of` returns the value of a record batch."""
        self._value_of = value_of
        self._kind = kind
        self._runs: list[tuple[object, int]] = []

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        value, count = self._value_of(records), len(records)
        if self._runs and self._runs[-1][0] == value:
            count += self._runs.pop()[1]
        self._runs.append((value, count))
        return 0

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`."""
        runs, self._runs = self._runs, []
        if len(runs) == 1:
            ((value, count),) = runs
            return _repeated(value, self._kind, count)
        values, counts = zip(*runs, strict=True)
        ends = pa.array(accumulate(counts), pa.int32())
        whole = pa.RunEndEncodedArray.from_arrays(ends, pa.array(values, self._kind))
        return pc.run_end_decode(whole)


@final
class OffsetBuilder:
    """Column of offsets; consecutive offsets stay ranges without a Python number each."""

    def __init__(self) -> None:
        """Create an empty builder."""
        self._runs: list[Sequence[int]] = []

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        offsets = records.offsets
        last = self._runs[-1] if self._runs else None
        if isinstance(offsets, range) and isinstance(last, range) and last.stop == offsets.start:
            self._runs[-1] = range(last.start, offsets.stop)
        else:
            self._runs.append(offsets)
        return len(offsets) * _NUMBER_BYTES

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`."""
        runs, self._runs = self._runs, []
        return _joined([_offsets(run) for run in runs])


@final
class TimestampBuilder:
    """Column of timestamps: the first timestamp of each batch plus a delta for each record."""

    def __init__(self) -> None:
        """Create an empty builder."""
        self._firsts = RunBuilder(lambda records: records.first_timestamp_ms, pa.int64())
        self._deltas = _Numbers(pa.int64())
        self._partition = ""

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        deltas = records.timestamp_deltas
        self._partition = f"{records.topic}/{records.partition}"
        self._firsts.add(records)
        self._deltas.add(bytes(len(records)) if deltas is None else deltas)
        return len(records) * _NUMBER_BYTES

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`.

        Raises:
            UnfitTimeError: A timestamp is beyond those of Spark.
        """
        times = pc.add(self._firsts.take(), _joined(self._deltas.take()))
        largest = pc.max(times).as_py()
        if largest > _TIME_MAX_MS:
            raise UnfitTimeError(
                f"{self._partition}: the timestamp {largest} ms is beyond those of Spark, perhaps"
                " in other units; read without the column timestamp: say columns=value,offset"
            )
        return times.view(_TIME_IN_MS).cast(TIME)


@final
class BinaryBuilder:
    """Column of keys or values."""

    def __init__(self, name: str, of: Callable[[RecordColumns], Sequence[bytes | None]]) -> None:
        """Create a builder of the batch column `name`; `of` returns its values as objects."""
        self._name = name
        self._of = of
        self._nulls = _Nulls()
        self._packed = _Packed()
        self._objects = _Objects()
        self._run: _Nulls | _Packed | _Objects = self._nulls
        """The run that holds the newest values; older values are in `_pieces`."""
        self._pieces: list[pa.Array] = []

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        size = records.size_of(self._name)
        if size is None:
            self._begin(self._nulls)
            self._nulls.count += len(records)
            return 0
        column = records.byte_column(self._name)
        if column is None:
            self._begin(self._objects)
            self._objects.values += self._of(records)
        else:
            self._begin(self._packed)
            self._packed.add(column)
        return size

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`."""
        pieces = [*self._pieces, self._run.take()]
        self._pieces = []
        return _joined(pieces)

    def _begin(self, run: "_Nulls | _Packed | _Objects") -> None:
        if run is not self._run:
            self._pieces.append(self._run.take())
            self._run = run


@final
class _Nulls:
    """Run of records without the value."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> pa.Array:
        count, self.count = self.count, 0
        return pa.nulls(count, pa.binary())


@final
class _Objects:
    """Run of values that are Python objects."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def take(self) -> pa.Array:
        values, self.values = self.values, []
        return pa.array(values, pa.binary())


@final
class _Packed:
    """Run of values as lengths and a blob, copied from batches of format 2."""

    def __init__(self) -> None:
        self._lengths = _Numbers(pa.int32())
        self._blob = _Blob()
        self._nulls = bytearray()
        self._has_nulls = False

    def add(self, column: ByteColumn) -> None:
        """Add a checked column."""
        self._lengths.add(column.length_numbers())
        self._blob.add(column.blob)
        if column.nulls is None:
            self._nulls += bytes(len(column))
        else:
            self._nulls += column.nulls
            self._has_nulls = True

    def take(self) -> pa.Array:
        nulls, self._nulls = self._nulls, bytearray()
        present = None
        if self._has_nulls:
            present = pc.equal(_array("B", nulls), 0).buffers()[1]
            self._has_nulls = False
        ends = pc.cumulative_sum(_joined([_ZERO, *self._lengths.take()])).buffers()[1]
        return pa.Array.from_buffers(pa.binary(), len(nulls), [present, ends, self._blob.take()])


@final
class _Blob:
    """Bytes that become a buffer of Arrow without another copy.

    Arrow's pool hands out memory that it used before. A `bytearray` takes it from the kernel, which
    clears every page: that takes longer than the copy.
    """

    def __init__(self) -> None:
        self._size = _BLOB_BYTES
        """Bytes of the next buffer: those of the last one, and some more."""
        self._buffer = pa.allocate_buffer(0)
        self._view = memoryview(self._buffer).cast("B")
        self._end = 0

    def add(self, content: BytesLike) -> None:
        """Add a copy of the content."""
        end = self._end + len(content)
        if end > len(self._view):
            self._size = max(self._size, end + min(end, _SPARE_BYTES_MAX))
            larger = pa.allocate_buffer(self._size)
            view = memoryview(larger).cast("B")
            view[: self._end] = self._view[: self._end]
            self._buffer, self._view = larger, view
        self._view[self._end : end] = content
        self._end = end

    def take(self) -> pa.Buffer:
        """Return the bytes, and begin another buffer: Arrow keeps this one."""
        taken = self._buffer.slice(0, self._end)
        self._size = min(self._end + (self._end >> 3), _SPARE_BYTES_MAX)
        self._buffer = pa.allocate_buffer(0)
        self._view, self._end = memoryview(self._buffer).cast("B"), 0
        return taken


@final
class _Numbers:
    """Runs of numbers: adjacent runs of the same type share a buffer."""

    def __init__(self, kind: pa.DataType) -> None:
        """Create an empty collection that becomes arrays of this type."""
        self._kind = kind
        self._runs: list[tuple[str, bytearray]] = []

    def add(self, numbers: Sequence[int]) -> None:
        """Add a copy of byte strings, of arrays of any type in `_KINDS`, or of other integers."""
        if isinstance(numbers, bytes | memoryview):
            code = "B"
        elif isinstance(numbers, array):
            code = numbers.typecode
        else:
            code, numbers = "q", array("q", numbers)
        if not self._runs or self._runs[-1][0] != code:
            self._runs.append((code, bytearray()))
        content = self._runs[-1][1]
        content += memoryview(numbers).cast("B")

    def take(self) -> list[pa.Array]:
        """Return the numbers in order, and forget them."""
        runs, self._runs = self._runs, []
        return [_array(code, content).cast(self._kind) for code, content in runs]


def _array(code: str, content: bytearray) -> pa.Array:
    kind = _KINDS[code]
    count = len(content) // kind.byte_width
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(content)])


@lru_cache(8)  # Most columns repeat the same value in consecutive Arrow batches.
def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


def _joined(pieces: list[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _offsets(offsets: Sequence[int]) -> pa.Array:
    if isinstance(offsets, range):
        return _joined([_counted(part) for part in _parts(offsets)])
    return pa.array(offsets, pa.int64())


def _parts(numbers: range) -> list[range]:
    return [numbers[at : at + ROWS_MAX] for at in range(0, len(numbers), ROWS_MAX)]


def _counted(numbers: range) -> pa.Array:
    """Return an array of at most `ROWS_MAX` consecutive numbers."""
    return pc.add(_COUNTED.slice(0, len(numbers)), pa.scalar(numbers.start, pa.int64()))


def times(times_ms: Sequence[int | None]) -> pa.Array:
    """Return Unix milliseconds as an array of Spark's timestamp type."""
    return pa.array(times_ms, _TIME_IN_MS).cast(TIME)
