"""Columns of Arrow that are put together of batches of records.

Pure: no clock, no I/O. Imports pyarrow, so only readers import it. What costs something for each
record is done in C: keys and values that are equally long, and times close to each other, go from
the payload of a batch to Arrow without an object of Python in between.
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
"""Rows of one Arrow batch: enough that the cost of a batch is spread, few enough for memory."""
TIME: Final = pa.timestamp("us", tz="UTC")
_TIME_IN_MS: Final = pa.timestamp("ms", tz="UTC")
_COUNTED: Final = pa.array(range(ROWS_MAX), pa.int64())
_NUMBER_BYTES: Final = 8


class ColumnBuilder(Protocol):
    """One column of the rows that are put together."""

    def add(self, records: RecordColumns) -> int:
        """Add what records have; return how many bytes that takes, about."""
        ...

    def take(self) -> pa.Array:
        """Return all of it, and begin with nothing."""
        ...


@final
class ChunkedBuilder:
    """A column with a value for each record: an array for each batch of records."""

    def __init__(self, make: Callable[[RecordColumns], pa.Array]) -> None:
        """Have `make` make the arrays."""
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
    """A column whose value is the same for all records of a batch, and mostly beyond it."""

    def __init__(self, value_of: Callable[[RecordColumns], object], kind: pa.DataType) -> None:
        """Have `value_of` say which."""
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
    """Offsets, which nearly always follow each other: then no number is made one by one."""

    def __init__(self) -> None:
        """Begin with none."""
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
    """The times of records: deltas of a byte or more, to the first times of their batches."""

    def __init__(self) -> None:
        """Begin with none."""
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
    """Keys, or values."""

    def __init__(self, name: str, of: Callable[[RecordColumns], Sequence[bytes | None]]) -> None:
        """Have the column `name` of batches, or what `of` says, one by one."""
        self._name = name
        self._of = of
        self._nulls = _Nulls()
        self._even = _Even()
        self._objects = _Objects()
        self._run: _Nulls | _Even | _Objects = self._nulls
        """Where the last ones are; those before them are in pieces."""
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
    """Records that have none."""

    def __init__(self) -> None:
        self.count = 0

    def take(self) -> pa.Array:
        count, self.count = self.count, 0
        return pa.nulls(count, pa.binary())


@final
class _Objects:
    """Some that Python has objects of."""

    def __init__(self) -> None:
        self.values: list[bytes | None] = []

    def take(self) -> pa.Array:
        values, self.values = self.values, []
        return pa.array(values, pa.binary())


@final
class _Even:
    """Some that are equally long.

    They are in one buffer, which stays: to have a new one each time would cost more than copying,
    for the kernel gives memory by pages, and clears them.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._end = 0
        self._head = b""
        self._value_bytes = 0

    def fits(self, even: EvenBytes) -> bool:
        """Return whether they are as long as those that are there."""
        return not self._end or even.head == self._head

    def add(self, even: EvenBytes) -> bool:
        """Add some that fit, unless they are not equally long."""
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


@lru_cache(8)  # Most are the same in one Arrow batch as in the next.
def _repeated(value: object, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)


@lru_cache(8)  # There are as many rows in one Arrow batch as in the next.
def _ends(count: int, value_bytes: int) -> pa.Buffer | None:
    """Return where values begin, and the last one ends."""
    ends = pc.multiply(_numbers(range(count + 1)), pa.scalar(value_bytes, pa.int64()))
    return ends.cast(pa.int32()).buffers()[1]


def _joined(pieces: list[pa.Array]) -> pa.Array:
    return pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)


def _merged(runs: Sequence[Sequence[int]]) -> list[Sequence[int]]:
    """Return runs of which no two of bytes follow each other."""
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
    """Return at most `ROWS_MAX` numbers that follow each other."""
    return pc.add(_COUNTED.slice(0, len(numbers)), pa.scalar(numbers.start, pa.int64()))


def times(times_ms: Sequence[int | None]) -> pa.Array:
    """Return times as Spark wants them, made of some in milliseconds."""
    return pa.array(times_ms, _TIME_IN_MS).cast(TIME)
