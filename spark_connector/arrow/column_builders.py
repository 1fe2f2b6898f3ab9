"""Builders of Arrow columns from record batches.

Pure: no clock, no I/O. Imports pyarrow, so only readers import it. Per-record work runs in C: keys
and values of equal length, and timestamps close to each other, go from the payload of a batch to
Arrow without Python objects.
"""

from array import array
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final, Protocol, final

import pyarrow as pa
import pyarrow.compute as pc

from tidelog.spark_connector.arrow.record_columns import RecordColumns
from tidelog.wire.batch.batch_columns import EvenBytes

ROWS_MAX: Final = 16_384
"""Rows of one Arrow batch: enough to spread the cost of a batch, few enough for memory."""
TIME: Final = pa.timestamp("us", tz="UTC")
_TIME_IN_MS: Final = pa.timestamp("ms", tz="UTC")
_COUNTED: Final = pa.array(range(ROWS_MAX), pa.int64())
_NUMBER_BYTES: Final = 8


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
        runs = [_numbers(run) for run in self._runs]
        self._runs = []
        return _joined(runs)


@final
class TimestampBuilder:
    """Column of timestamps: the first timestamp of each batch plus a delta for each record."""

    def __init__(self) -> None:
        """Create an empty builder."""
        self._firsts = RunBuilder(lambda records: records.first_timestamp_ms, pa.int64())
        self._deltas: list[Sequence[int]] = []

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        deltas = records.timestamp_deltas
        self._firsts.add(records)
        self._deltas.append(bytes(len(records)) if deltas is None else deltas)
        return len(records) * _NUMBER_BYTES

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`."""
        deltas, self._deltas = self._deltas, []
        times = pc.add(self._firsts.take(), _joined([_numbers(run) for run in _merged(deltas)]))
        return times.view(_TIME_IN_MS).cast(TIME)


@final
class BinaryBuilder:
    """Column of keys or values."""

    def __init__(self, name: str, of: Callable[[RecordColumns], Sequence[bytes | None]]) -> None:
        """Create a builder of the batch column `name`; `of` returns its values as objects."""
        self._name = name
        self._of = of
        self._nulls = _Nulls()
        self._even = _Even()
        self._objects = _Objects()
        self._run: _Nulls | _Even | _Objects = self._nulls
        """The run that holds the newest values; older values are in `_pieces`."""
        self._pieces: list[pa.Array] = []

    def add(self, records: RecordColumns) -> int:
        """See `ColumnBuilder.add`."""
        size = records.size_of(self._name)
        if size is None:
            self._begin(self._nulls)
            self._nulls.count += len(records)
            return 0
        even = records.even_bytes(self._name)
        if even is None or not self._add_even(even):
            self._begin(self._objects)
            self._objects.values += self._of(records)
        return size

    def take(self) -> pa.Array:
        """See `ColumnBuilder.take`."""
        pieces = [*self._pieces, self._run.take()]
        self._pieces = []
        return _joined(pieces)

    def _add_even(self, even: EvenBytes) -> bool:
        self._begin(self._even)
        if not self._even.fits(even):
            self._pieces.append(self._even.take())
        return self._even.add(even)

    def _begin(self, run: "_Nulls | _Even | _Objects") -> None:
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
class _Even:
    """Run of values of equal length.

    They share one buffer, which is kept: a new buffer for each batch costs more than the copy,
    because the kernel clears every page that it hands out.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._end = 0
        self._head = b""
        self._value_bytes = 0

    def fits(self, even: EvenBytes) -> bool:
        """Return whether these values are as long as those of the run."""
        return not self._end or even.head == self._head

    def add(self, even: EvenBytes) -> bool:
        """Add values that fit; return False if their lengths differ."""
        end = self._end + len(even.content)
        if end > len(self._buffer):
            self._buffer += bytes(end - len(self._buffer))
        if not even.copy_to(self._buffer, self._end):
            return False
        self._head, self._value_bytes, self._end = even.head, even.value_bytes, end
        return True

    def take(self) -> pa.Array:
        end, self._end = self._end, 0
        if not end:
            return pa.nulls(0, pa.binary())
        stride = len(self._head) + self._value_bytes
        count = end // stride
        content = pa.py_buffer(memoryview(self._buffer)[:end])
        elements = pa.Array.from_buffers(pa.binary(stride), count, [None, content])
        values = pc.binary_slice(elements, len(self._head)).buffers()[1]
        ends = _ends(count, self._value_bytes)
        return pa.Array.from_buffers(pa.binary(), count, [None, ends, values])


@lru_cache(8)  # Most columns repeat the same value in consecutive Arrow batches.
def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


@lru_cache(8)  # Consecutive Arrow batches mostly have the same number of rows.
def _ends(count: int, value_bytes: int) -> pa.Buffer | None:
    """Return the start positions of the values and the end of the last value."""
    ends = pc.multiply(_numbers(range(count + 1)), pa.scalar(value_bytes, pa.int64()))
    return ends.cast(pa.int32()).buffers()[1]


def _joined(pieces: list[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _merged(runs: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return the runs with adjacent runs of bytes merged."""
    merged: list[Sequence[int]] = []
    small: list[bytes] = []
    for run in runs:
        if isinstance(run, bytes):
            small.append(run)
            continue
        if small:
            merged.append(b"".join(small))
            small = []
        merged.append(run)
    if small:
        merged.append(b"".join(small))
    return merged


def _numbers(numbers: Sequence[int]) -> pa.Array:
    if isinstance(numbers, range):
        return _joined([_counted(part) for part in _parts(numbers)])
    if isinstance(numbers, bytes):
        small = pa.Array.from_buffers(pa.uint8(), len(numbers), [None, pa.py_buffer(numbers)])
        return small.cast(pa.int64())
    content = pa.py_buffer(array("q", numbers))
    return pa.Array.from_buffers(pa.int64(), len(numbers), [None, content])


def _parts(numbers: range) -> list[range]:
    return [numbers[at : at + ROWS_MAX] for at in range(0, len(numbers), ROWS_MAX)]


def _counted(numbers: range) -> pa.Array:
    """Return an array of at most `ROWS_MAX` consecutive numbers."""
    return pc.add(_COUNTED.slice(0, len(numbers)), pa.scalar(numbers.start, pa.int64()))


def times(times_ms: Sequence[int | None]) -> pa.Array:
    """Return Unix milliseconds as an array of Spark's timestamp type."""
    return pa.array(times_ms, _TIME_IN_MS).cast(TIME)
