"""Decoder of large payloads in steps: none of them holds its thread for more than milliseconds.

Pure: no clock, no I/O. A payload of a megabyte may hold a million small objects, and a decoder in C
returns only at the end. The walk over the elements in Python takes longer in all, and can stop.
"""

from collections.abc import Generator
from typing import Any, Final

import msgspec

from tidelog.wire.batch.record_batch import BatchHeader, Columns, Headers
from tidelog.wire.errors import WireFormatError

SMALL_BYTES: Final = 64 << 10
"""Uncompressed bytes that are decoded in one step."""
_RECORDS_AT_ONCE: Final = 250
_TOKENS_AT_ONCE: Final = 5_000
_TOKENS_MAX: Final = 20_000
"""Maximum objects of `_RECORDS_AT_ONCE` records."""

_DECODERS: Final[dict[str, msgspec.msgpack.Decoder[Any]]] = {
    "timestamp_deltas": msgspec.msgpack.Decoder(list[int]),
    "keys": msgspec.msgpack.Decoder(list[bytes | None]),
    "headers": msgspec.msgpack.Decoder(list[Headers]),
    "offset_deltas": msgspec.msgpack.Decoder(list[int]),
}
_ORDER: Final = ("timestamp_deltas", "keys", "values", "headers", "offset_deltas")
_NIL: Final = 0xC0
_FIXED_BYTES: Final[dict[int, int]] = {
    **dict.fromkeys((*range(0x80), *range(0xE0, 0x100), 0xC0, 0xC2, 0xC3), 1),
    **{0xA0 + length: 1 + length for length in range(0x20)},
    **dict.fromkeys((0xCC, 0xD0), 2),
    **dict.fromkeys((0xCD, 0xD1), 3),
    **dict.fromkeys((0xCA, 0xCE, 0xD2), 5),
    **dict.fromkeys((0xCB, 0xCF, 0xD3), 9),
}
"""Bytes of numbers, short strings and other scalars, by their first byte."""
_LENGTH_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length of a string, by its first byte."""


def columns_in_steps(header: BatchHeader, plain: memoryview) -> Generator[None, None, Columns]:
    """Return the columns of an unpacked payload, without the values; yield after each step.

    Raises:
        WireFormatError: The payload is not what the header says, or has too many headers.
    """
    if not plain or plain[0] != 0x95:  # noqa: PLR2004 (an array of five)
        raise WireFormatError("the payload is not five columns")
    at = 1
    found: dict[str, list[Any] | None] = {}
    try:
        for name in _ORDER:
            at, found[name] = yield from _column(name, header.record_count, plain, at=at)
    except (IndexError, ValueError) as error:  # Cut off, or not of the types of the column.
        raise WireFormatError(f"the payload is not five columns: {error}") from error
    if at != len(plain):
        raise WireFormatError("the payload is longer than its five columns")
    return Columns(
        header.record_count,
        found["timestamp_deltas"],
        found["keys"],
        None,
        found["headers"],
        found["offset_deltas"],
    )


def check_object_count(plain: memoryview, most: int) -> None:
    """Check that a payload has at most so many objects: keys, values, headers and their parts.

    Raises:
        WireFormatError: It has more, or is cut off.
    """
    try:
        for _ in _skip(plain, 0, 1, most=most):
            pass
    except IndexError as error:
        raise WireFormatError("the payload is cut off") from error


def _column(
    name: str, record_count: int, plain: memoryview, *, at: int
) -> Generator[None, None, tuple[int, list[Any] | None]]:
    """Return the end of a column, and its elements unless they are values."""
    if plain[at] == _NIL:
        return at + 1, None
    count, at = _array(plain, at)
    if count != record_count:
        raise WireFormatError(f"a column of {count} records under a header of {record_count}")
    decoder = _DECODERS.get(name)
    elements: list[Any] = []
    for first in range(0, count, _RECORDS_AT_ONCE):
        some = min(_RECORDS_AT_ONCE, count - first)
        end = yield from _skip(plain, at, some)
        if decoder is not None:
            elements += decoder.decode(b"\xdd" + some.to_bytes(4, "big") + plain[at:end])
        at = end
        yield
    return at, None if decoder is None else elements


def _array(plain: memoryview, at: int) -> tuple[int, int]:
    """Return the length of an array, and the position of its first element."""
    first = plain[at]
    if first & 0xF0 == 0x90:  # noqa: PLR2004 (a short array)
        return first & 0x0F, at + 1
    size = {0xDC: 2, 0xDD: 4}.get(first)
    if size is None:
        raise WireFormatError(f"a column is neither an array nor nil: it begins with {first:#04x}")
    return int.from_bytes(plain[at + 1 : at + 1 + size], "big"), at + 1 + size


def _skip(
    plain: memoryview, at: int, count: int, *, most: int = _TOKENS_MAX
) -> Generator[None, None, int]:
    """Return the position behind so many values, which may contain arrays.

    Raises:
        WireFormatError: They contain too many objects.
    """
    tokens = 0
    while count:
        count -= 1
        tokens += 1
        if tokens % _TOKENS_AT_ONCE == 0:
            yield
        if tokens > most:
            raise WireFormatError(f"a few records have more than {most:,} keys and headers")
        first = plain[at]
        if first in _FIXED_BYTES:
            at += _FIXED_BYTES[first]
        elif first in _LENGTH_BYTES:
            size = _LENGTH_BYTES[first]
            at += 1 + size + int.from_bytes(plain[at + 1 : at + 1 + size], "big")
        else:
            inside, at = _array(plain, at)
            count += inside
    if at > len(plain):
        raise WireFormatError("the payload is cut off")
    return at
