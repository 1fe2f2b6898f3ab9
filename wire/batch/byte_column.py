"""Keys or values of a batch as lengths and one blob, and columns of numbers: format version 2.

Pure: no clock, no I/O. A column is a few byte strings, so that Arrow and other readers of whole
columns need no object for each value. `docs/formats/record_batch.md` describes the bytes.
"""

import sys
from array import array
from collections.abc import Iterator, Sequence
from io import BytesIO
from itertools import compress
from typing import Final, cast, final, overload

from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import WireFormatError

_LENGTH_CODES: Final = {1: "B", 2: "H", 4: "I"}
_NUMBER_CODES: Final = {1: "b", 2: "h", 4: "i", 8: "q"}
"""Type codes of `array` by the width in bytes."""
_IS_BIG_ENDIAN: Final = sys.byteorder == "big"
_NULL_MARKS: Final = b"\0\1"
_ARRAY_3: Final = b"\x93"
_NIL: Final = b"\xc0"


@final
class ByteColumn(Sequence[bytes | None]):
    """Keys or values of a batch without an object for each of them.

    As a sequence, it makes the objects while it is iterated over, and keeps them from the first
    access by index on. It equals a list of the same values.
    """

    __slots__ = ("_values", "blob", "lengths", "nulls", "width")

    def __init__(
        self,
        lengths: BytesLike,
        width: int,
        blob: BytesLike,
        *,
        nulls: BytesLike | None = None,
    ) -> None:
        """Take the parts of a column; `check` compares them with each other."""
        self.lengths = _unsigned(lengths)
        """Little-endian unsigned integers: the bytes of each value, 0 for a null."""
        self.width = width
        """Bytes of each length: 1, 2 or 4."""
        self.blob = _unsigned(blob)
        """All values in order, without anything between them."""
        self.nulls = None if nulls is None else _unsigned(nulls)
        """One byte a record, 1 if it has no value, otherwise 0; `None` if all have one."""
        self._values: list[bytes | None] | None = None

    @staticmethod
    def of(values: Sequence[bytes | None]) -> "ByteColumn":
        """Return the column of these values, with lengths as short as possible."""
        if isinstance(values, ByteColumn):
            return values
        present, width, lengths, nulls = _divided(values)
        return ByteColumn(lengths, width, b"".join(present), nulls=nulls)

    def check(self, count: int) -> None:
        """Check that the parts agree with each other and make `count` values.

        Raises:
            WireFormatError: They do not.
        """
        self.check_parts(count)
        if self._total() != len(self.blob):
            raise self._wrong_sum()

    def check_parts(self, count: int) -> None:
        """Check all but the sum of the lengths, which `values` checks.

        Raises:
            WireFormatError: The parts do not make `count` values.
        """
        lengths, nulls = self.lengths, self.nulls
        if self.width not in _LENGTH_CODES or len(lengths) != self.width * count:
            raise WireFormatError(
                f"{len(lengths)} bytes of lengths of {self.width} bytes for {count} records"
            )
        if nulls is None:
            return
        if len(nulls) != count:
            raise WireFormatError(f"{len(nulls)} null marks for {count} records")
        if bytes(nulls).translate(None, _NULL_MARKS):
            raise WireFormatError("a null mark is neither 0 nor 1")
        if any(compress(self.length_numbers(), nulls)):
            raise WireFormatError("a null has bytes")

    def _wrong_sum(self) -> WireFormatError:
        return WireFormatError(
            f"the lengths of a column do not add up to the {len(self.blob)} bytes of its values"
        )

    def _total(self) -> int:
        """Return the sum of the lengths: of their bytes by place, twice as fast as of numbers."""
        raw = bytes(self.lengths)
        return sum(sum(raw[place :: self.width]) << 8 * place for place in range(self.width))

    def part(self, rows: range) -> "ByteColumn":
        """Return the column of some consecutive values, as views."""
        if rows == range(len(self)):
            return self
        numbers = self.length_numbers()
        start = sum(numbers[: rows.start])
        end = start + sum(numbers[rows.start : rows.stop])
        return ByteColumn(
            self.lengths[rows.start * self.width : rows.stop * self.width],
            self.width,
            self.blob[start:end],
            nulls=None if self.nulls is None else self.nulls[rows.start : rows.stop],
        )

    def length_numbers(self) -> Sequence[int]:
        """Return the bytes of each value, 0 for a null."""
        if self.width == 1:
            return bytes(self.lengths)  # An iteration over a memoryview takes three times as long.
        return _unpacked(self.lengths, _LENGTH_CODES[self.width])

    def values(self) -> list[bytes | None]:
        """Return the values as objects; the column keeps the list.

        `check` or `check_parts` came before.

        Raises:
            WireFormatError: The lengths do not add up to the blob.
        """
        if self._values is None:
            numbers, stream = self.length_numbers(), BytesIO(self.blob)
            # The fastest way to divide a blob: slices take three times as long.
            found: list[bytes | None] = list(map(stream.read, numbers))
            # The stream ends too early if the sum is too small. If it is too large, a value is cut
            # off, and so is each one behind it that has a length.
            last = -(-len(bytes(self.lengths).rstrip(b"\0")) // self.width) - 1
            is_cut = last >= 0 and len(found[last] or b"") != numbers[last]
            if is_cut or stream.tell() != len(self.blob):
                raise self._wrong_sum()
            if self.nulls is not None:
                for place in compress(range(len(found)), self.nulls):
                    found[place] = None
            self._values = found
        return self._values

    def __len__(self) -> int:
        """Return the number of values, with those that are null."""
        return len(self.lengths) // self.width

    @overload
    def __getitem__(self, place: int) -> bytes | None: ...

    @overload
    def __getitem__(self, place: slice) -> list[bytes | None]: ...

    def __getitem__(self, place: int | slice) -> bytes | list[bytes | None] | None:
        """Return some of `values`."""
        return self.values()[place]

    def __iter__(self) -> Iterator[bytes | None]:
        """Iterate over `values`; each is made when it is asked for."""
        if self._values is None and self.nulls is None:
            return map(BytesIO(self.blob).read, self.length_numbers())
        return iter(self.values())

    def __eq__(self, other: object) -> bool:
        """Return whether the other one is a list or column of the same values."""
        if isinstance(other, ByteColumn):
            return self.values() == other.values()
        return self.values() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        """Return the text of a list of the values."""
        return repr(self.values())

    def __reduce__(self) -> tuple[type[list[bytes | None]], tuple[list[bytes | None]]]:
        """Pickle and copy as a list: the parts may be views of a whole reply."""
        return list, (self.values(),)


def pack_values(
    values: Sequence[bytes | None], known_lengths: bytes | None = None
) -> tuple[list[BytesLike], int]:
    """Return the pieces of the MessagePack array `[lengths, blob, nulls]`, and their bytes.

    The pieces are for one `join`: a blob that is joined on its own costs a copy of all values.
    `known_lengths` has the length of each value in a byte, if none is null: to find them takes as
    long as the join. If they are wrong, the pieces have other bytes in all.

    Raises:
        WireFormatError: A `ByteColumn` contradicts itself.
    """
    pieces: list[BytesLike]
    parts: Sequence[BytesLike]
    lengths: BytesLike
    nulls: BytesLike | None
    if isinstance(values, ByteColumn):
        values.check(len(values))
        lengths, nulls = values.lengths, values.nulls
        blob_length, parts = len(values.blob), [values.blob]
    else:
        if known_lengths is None:
            parts, width, lengths, nulls = _divided(values)
        else:
            parts, width, lengths, nulls = cast("list[bytes]", values), 1, known_lengths, None
        blob_length = sum(lengths if width == 1 else map(len, parts))
    pieces = [_ARRAY_3, bytes_head(len(lengths)), lengths, bytes_head(blob_length)]
    end = (_NIL,) if nulls is None else (bytes_head(len(nulls)), nulls)
    size = sum(map(len, pieces)) + blob_length + sum(map(len, end))
    pieces += parts
    pieces += end
    return pieces, size


def bytes_head(length: int) -> bytes:
    """Return the MessagePack head of a byte string."""
    if length < 1 << 8:
        return b"\xc4%c" % length
    if length < 1 << 16:
        return b"\xc5" + length.to_bytes(2, "big")
    return b"\xc6" + length.to_bytes(4, "big")


def _unsigned(part: BytesLike) -> BytesLike:
    """Return bytes as numbers from 0 to 255; a view of an Arrow buffer has signed ones."""
    return part.cast("B") if isinstance(part, memoryview) and part.format != "B" else part


def _divided(
    values: Sequence[bytes | None],
) -> tuple[Sequence[bytes], int, bytes, bytes | None]:
    """Return the values with an empty one for each null, width and lengths, and the null marks."""
    nulls, present = None, cast("Sequence[bytes]", values)
    try:
        return present, 1, bytes(map(len, present)), nulls
    except (TypeError, ValueError):  # There is a null, or a value of more than 255 bytes.
        pass
    if None in values:
        nulls = bytes([value is None for value in values])
        present = [b"" if value is None else value for value in values]
    lengths = list(map(len, present))
    longest = max(lengths)
    width = 1 if longest < 1 << 8 else 2 if longest < 1 << 16 else 4
    return present, width, _packed(array(_LENGTH_CODES[width], lengths)), nulls


def length_width(lengths: BytesLike, count: int) -> int:
    """Return the bytes of each length, if these are the lengths of `count` values.

    Raises:
        WireFormatError: They are not, for any width.
    """
    width, rest = divmod(len(lengths), count) if count else (1, len(lengths))
    if rest or width not in _LENGTH_CODES:
        raise WireFormatError(f"{len(lengths)} bytes of lengths for {count} records")
    return width


def pack_numbers(numbers: Sequence[int]) -> bytes:
    """Return signed numbers as little-endian integers of 1, 2, 4 or 8 bytes, as few as possible.

    Raises:
        OverflowError: A number takes more than 64 bits.
    """
    if isinstance(numbers, array):
        numbers = numbers.tolist()
    try:
        small = bytes(numbers)  # Several times as fast as an array.
    except ValueError:
        small = b""
    if len(small) == len(numbers) and small.isascii():
        return small
    for code in _NUMBER_CODES.values():
        try:
            return _packed(array(code, numbers))
        except OverflowError:
            if code == _NUMBER_CODES[8]:
                raise
    raise AssertionError("the last code returns or raises")


def unpack_numbers(packed: BytesLike, count: int) -> "array[int]":
    """Return the `count` signed numbers of a column, as an array of their own width.

    Raises:
        WireFormatError: The bytes are not so many numbers.
    """
    width, rest = divmod(len(packed), count) if count else (1, len(packed))
    code = _NUMBER_CODES.get(width)
    if rest or code is None:
        raise WireFormatError(f"a column of {len(packed)} bytes for the numbers of {count} records")
    return _unpacked(packed, code)


def _packed(numbers: "array[int]") -> bytes:
    if _IS_BIG_ENDIAN:
        numbers.byteswap()
    return numbers.tobytes()


def _unpacked(packed: BytesLike, code: str) -> "array[int]":
    numbers: array[int] = array(code)
    numbers.frombytes(packed)
    if _IS_BIG_ENDIAN:
        numbers.byteswap()
    return numbers
