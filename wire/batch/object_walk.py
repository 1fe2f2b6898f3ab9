"""Walk over MessagePack values in steps, without decoding them.

Pure: no clock, no I/O. A payload of a megabyte may hold a million small objects, and a decoder in C
returns only at the end. This walk takes longer in all, and can stop.
"""

from collections.abc import Generator
from typing import Final

from tidelog.wire.errors import WireFormatError

NIL: Final = 0xC0
_ARRAY_LENGTH_BYTES: Final = {0xDC: 2, 0xDD: 4}
"""Bytes of the length of an array, by its first byte."""
_OBJECTS_AT_ONCE: Final = 5_000
_FIXED_BYTES: Final[dict[int, int]] = {
    **dict.fromkeys((*range(0x80), *range(0xE0, 0x100), NIL, 0xC2, 0xC3), 1),
    **{0xA0 + length: 1 + length for length in range(0x20)},
    **dict.fromkeys((0xCC, 0xD0), 2),
    **dict.fromkeys((0xCD, 0xD1), 3),
    **dict.fromkeys((0xCA, 0xCE, 0xD2), 5),
    **dict.fromkeys((0xCB, 0xCF, 0xD3), 9),
}
"""Bytes of numbers, short strings and other scalars, by their first byte."""
_LENGTH_BYTES: Final = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
"""Bytes of the length of a string, by its first byte."""


def check_object_count(values: memoryview, most: int, *, counted: int = 0) -> None:
    """Check that one value holds at most so many objects: arrays and their parts.

    `counted` objects count as well, of other values.

    Raises:
        WireFormatError: It has more, or is cut off.
    """
    try:
        for _ in skip(values, 0, 1, most=most, counted=counted):
            pass
    except IndexError as error:
        raise WireFormatError("the payload is cut off") from error


def array_head(values: memoryview, at: int = 0) -> tuple[int, int]:
    """Return the length of an array, and the position of its first element.

    Raises:
        WireFormatError: There is no array.
        IndexError: The bytes end before.
    """
    first = values[at]
    if first & 0xF0 == 0x90:  # noqa: PLR2004 (a short array)
        return first & 0x0F, at + 1
    size = _ARRAY_LENGTH_BYTES.get(first)
    if size is None:
        raise WireFormatError(f"a column is neither an array nor nil: it begins with {first:#04x}")
    return int.from_bytes(values[at + 1 : at + 1 + size], "big"), at + 1 + size


def skip(
    values: memoryview, at: int, count: int, *, most: int, counted: int = 0
) -> Generator[None, None, int]:
    """Return the position behind `count` values, which may contain arrays; yield after each step.

    Raises:
        WireFormatError: They contain more than `most` objects, with those `counted` before, or a
            map.
        IndexError: The bytes end before.
    """
    object_count = counted
    while count:
        count -= 1
        object_count += 1
        if object_count % _OBJECTS_AT_ONCE == 0:
            yield
        if object_count > most:
            raise WireFormatError(f"a few records have more than {most:,} keys and headers")
        first = values[at]
        if first in _FIXED_BYTES:
            at += _FIXED_BYTES[first]
        elif first in _LENGTH_BYTES:
            size = _LENGTH_BYTES[first]
            at += 1 + size + int.from_bytes(values[at + 1 : at + 1 + size], "big")
        else:
            inside, at = array_head(values, at)
            count += inside
    if at > len(values):
        raise WireFormatError("the payload is cut off")
    return at
