"""Dumps of the golden files: bytes as text, with their meaning."""

import struct
from collections.abc import Iterator, Mapping

_BYTES_IN_A_LINE = 16
_IN_HEXADECIMAL = {"sync_marker", "header_crc", "batch_crc", "flags", "crc", "correlation_id"}

Fields = Mapping[str, tuple[int, str]]
"""Offset and `struct` letters of each field; all little-endian."""


def dump_fields(data: bytes, fields: Fields, *, start: int = 0) -> Iterator[str]:
    """Yield a line for each field of the bytes from `start` on."""
    for name, (offset, letters) in fields.items():
        yield from dump_field(data, name, start + offset, letters=letters)


def dump_field(data: bytes, name: str, offset: int, *, letters: str) -> Iterator[str]:
    """Yield the lines that explain one field."""
    size = struct.calcsize("<" + letters)
    values: tuple[object, ...] = struct.unpack_from("<" + letters, data, offset)
    shown = ", ".join(_shown(name, value, size) for value in values)
    yield from lines(offset, data[offset : offset + size], f"{name.strip()} = {shown}")


def lines(offset: int, data: bytes, meaning: str) -> Iterator[str]:
    """Yield the bytes in lines, with their meaning beside the first."""
    for start in range(0, len(data), _BYTES_IN_A_LINE):
        shown = data[start : start + _BYTES_IN_A_LINE].hex(" ")
        yield f"{offset + start:4}  {shown:<{3 * _BYTES_IN_A_LINE}} {meaning}".rstrip()
        meaning = ""


def text(dump: Iterator[str]) -> bytes:
    """Return a dump as the content of a file."""
    return "".join(f"{line}\n" for line in dump).encode()


def _shown(name: str, value: object, size: int) -> str:
    if isinstance(value, int) and name in _IN_HEXADECIMAL:
        return f"{value:#0{2 * size + 2}x}"
    if isinstance(value, bytes):
        if not any(value):
            return "0"
        return repr(value) if value.isascii() else value.hex()
    return str(value)
