"""Records from lines of text, as `consume` prints them.

Pure: no clock, no I/O.
"""

from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import final

import msgspec

from tidelog.cli.output.record_format import Encoding

LineRecord = tuple[bytes | None, bytes | None, list[tuple[str, bytes]] | None, int | None]
"""Key, value, headers and timestamp of a record; the producer chooses those that a line lacks."""

ParseLines = Callable[[Iterable[bytes]], Iterable[LineRecord]]
"""A function that returns the record of each line.

The iteration raises `ValueError`: the next line has not the expected form.
"""


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class TextLines:
    """Lines with a value, or a key, a separator and a value."""

    separator: bytes | None = None
    null: bytes | None = None
    """Text of a key or value that is absent."""
    key_encoding: Encoding = "text"
    value_encoding: Encoding = "text"

    def parse(self, lines: Iterable[bytes]) -> Iterable[LineRecord]:
        """Return the record of each line.

        Iterating raises:
            ValueError: There is no separator, or no base64.
        """
        if self.separator is not None:
            return self._keys_and_values(self.separator, lines)
        is_plain = self.null is None and self.value_encoding == "text"
        values = lines if is_plain else map(self._value, lines)
        return zip(repeat(None), values, repeat(None), repeat(None))

    def _keys_and_values(self, separator: bytes, lines: Iterable[bytes]) -> Iterator[LineRecord]:
        has_values, has_keys = self.value_encoding == "text", self.key_encoding == "text"
        no_key = self.null or b""
        for line in lines:
            key, found, value = line.partition(separator)
            if not found:
                raise ValueError(f"has no key separator {separator.decode()!r}")
            yield (
                None if key == no_key else key if has_keys else _decoded(key),
                value if has_values and value != self.null else self._value(value),
                None,
                None,
            )

    def _value(self, text: bytes) -> bytes | None:
        if text == self.null:
            return None
        return text if self.value_encoding == "text" else _decoded(text)


def _decoded(text: bytes) -> bytes:
    try:
        return b64decode(text, validate=True)
    except Base64Error as error:
        raise ValueError(f"has no base64: {error}") from None


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: bytes


class _Header(msgspec.Struct):
    name: str
    value: str | _Base64


class _JsonLine(msgspec.Struct):
    value: str | _Base64 | None
    key: str | _Base64 | None = None
    headers: list[_Header] | None = None
    timestamp_ms: int | None = None


_json_lines = msgspec.json.Decoder(_JsonLine)


def parse_json(lines: Iterable[bytes]) -> Iterator[LineRecord]:
    """Return the record of each JSON object, as `consume --json` prints it.

    Topic, partition and offset are those of another place, and do not count.

    Iterating raises:
        ValueError: A line is no such object.
    """
    for line in lines:
        try:
            found = _json_lines.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"is no record in JSON: {error}") from None
        headers = found.headers
        yield (
            _bytes_of(found.key),
            _bytes_of(found.value),
            None if headers is None else [(each.name, _bytes(each.value)) for each in headers],
            found.timestamp_ms,
        )


def _bytes_of(text: str | _Base64 | None) -> bytes | None:
    return None if text is None else _bytes(text)


def _bytes(text: str | _Base64) -> bytes:
    return text.base64 if isinstance(text, _Base64) else text.encode()
