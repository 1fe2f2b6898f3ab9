"""The formatters of records as lines of text.

Pure: no clock, no I/O. Works by column and avoids a Python step per record.
"""

import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import Final, Literal, final

import msgspec

from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.wire.batch.record_batch import Headers

FormatBatch = Callable[[RecordBatch], bytes]
"""A function that returns the lines of all records of a batch."""

Encoding = Literal["text", "base64"]
ENCODINGS: Final[tuple[Encoding, ...]] = ("text", "base64")

_json_encoder = msgspec.json.Encoder()


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class FieldText:
    """How keys and values become text."""

    null: bytes = b""
    """Text of a key or value that is absent."""
    key_encoding: Encoding = "text"
    value_encoding: Encoding = "text"

    def keys(self, batch: RecordBatch) -> Sequence[bytes]:
        """Return the text of each key."""
        return self._texts(batch.keys, self.key_encoding)

    def values(self, batch: RecordBatch) -> Sequence[bytes]:
        """Return the text of each value."""
        return self._texts(batch.values, self.value_encoding)

    def _texts(self, column: Iterable[bytes | None], encoding: Encoding) -> Sequence[bytes]:
        null = self.null
        if encoding == "base64":
            return [null if item is None else b64encode(item) for item in column]
        return [null if item is None else item for item in column]


def raw_format(key_separator: bytes | None, fields: FieldText | None = None) -> FormatBatch:
    """Return a formatter that writes each value on a line, after its key if there is a separator.

    A missing key or value is empty, unless `fields` has a text for it: `produce` with the same
    options reads it back.
    """
    texts = fields or FieldText()

    def format_values(batch: RecordBatch) -> bytes:
        return b"\n".join([*texts.values(batch), b""])

    def format_keys_and_values(batch: RecordBatch) -> bytes:
        assert key_separator is not None
        columns = zip(texts.keys(batch), texts.values(batch), strict=True)
        return b"\n".join([*map(key_separator.join, columns), b""])

    return format_values if key_separator is None else format_keys_and_values


# -- formats with tokens --------------------------------------------------------------------------

_PIECE: Final = re.compile(rb"%(.)|\\(x[0-9a-fA-F]{2}|.)|[%\\]", re.DOTALL)
_ESCAPES: Final = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"\\": b"\\", b"0": b"\0"}
_LENGTH: Final = Struct(">i")
TOKENS: Final = "%t %p %o %T %k %K %s %S %R %h %%"
"""The tokens of kcat; `%v` is `%s`."""


def token_format(text: bytes, fields: FieldText) -> FormatBatch:
    r"""Return a formatter by a format of kcat, such as `%k %s\n`.

    Raises:
        ValueError: The format has an unknown token or escape.
    """
    template: list[bytes] = []
    constants: list[tuple[int, bytes]] = []
    columns: list[Callable[[RecordBatch], Iterable[object]]] = []
    end = 0
    for piece in _PIECE.finditer(text):
        template.append(_literal(text[end : piece.start()]))
        end = piece.end()
        token, escape = piece.groups()
        if escape is not None:
            template.append(_literal(_escaped(escape)))
        elif token == b"%":
            template.append(b"%%")
        elif token in (b"t", b"p"):
            constants.append((len(template), token))
            template.append(b"")
        elif token in _COLUMNS:
            place, column = _COLUMNS[token]
            template.append(place)
            columns.append(column(fields))
        else:
            raise ValueError(f"{piece.group().decode(errors='replace')!r} is no token: {TOKENS}")
    template.append(_literal(text[end:]))

    def format_batch(batch: RecordBatch) -> bytes:
        parts = template.copy()
        for index, token in constants:
            constant = batch.topic.encode() if token == b"t" else b"%d" % batch.partition
            parts[index] = _literal(constant)
        record = b"".join(parts)
        if not columns:
            return (record % ()) * len(batch)
        rows = zip(*(column(batch) for column in columns), strict=True)
        return b"".join(map(record.__mod__, rows))

    return format_batch


def _literal(text: bytes) -> bytes:
    return text.replace(b"%", b"%%")


def _escaped(escape: bytes) -> bytes:
    if escape in _ESCAPES:
        return _ESCAPES[escape]
    if len(escape) > 1:
        return bytes.fromhex(escape[1:].decode())
    raise ValueError(
        f"'\\{escape.decode(errors='replace')}' is no escape: \\n \\r \\t \\0 \\xHH \\\\"
    )


def _lengths(column: Iterable[bytes | None]) -> list[int]:
    return [-1 if item is None else len(item) for item in column]


def _pairs(headers: Headers) -> bytes:
    return b",".join([b"%b=%b" % (name.encode(), value) for name, value in headers])


_Column = Callable[[FieldText], Callable[[RecordBatch], Iterable[object]]]
_COLUMNS: Final[dict[bytes, tuple[bytes, _Column]]] = {
    b"k": (b"%b", lambda fields: fields.keys),
    b"s": (b"%b", lambda fields: fields.values),
    b"v": (b"%b", lambda fields: fields.values),
    b"K": (b"%d", lambda _: lambda batch: _lengths(batch.keys)),
    b"S": (b"%d", lambda _: lambda batch: _lengths(batch.values)),
    b"R": (b"%b", lambda _: lambda batch: map(_LENGTH.pack, _lengths(batch.values))),
    b"o": (b"%d", lambda _: lambda batch: batch.offsets),
    b"T": (b"%d", lambda _: lambda batch: batch.timestamps_ms),
    b"h": (b"%b", lambda _: lambda batch: map(_pairs, batch.headers)),
}


# -- JSON -----------------------------------------------------------------------------------------

JsonBytes = str | dict[str, str] | None


def json_format(fields: FieldText | None = None) -> FormatBatch:
    """Return a formatter that writes each record as one JSON object on a line.

    Bytes that are not text are `{"base64": "..."}`, see `text_of`; with the encoding base64, all
    are.
    """
    texts = fields or FieldText()
    key_of = _base64_of if texts.key_encoding == "base64" else text_of
    value_of = _base64_of if texts.value_encoding == "base64" else text_of

    def format_batch(batch: RecordBatch) -> bytes:
        return _json_encoder.encode_lines(
            [
                {
                    "topic": batch.topic,
                    "partition": batch.partition,
                    "offset": offset,
                    "timestamp_ms": timestamp_ms,
                    "key": key_of(key),
                    "value": value_of(value),
                    "headers": [{"name": name, "value": text_of(item)} for name, item in headers],
                }
                for offset, timestamp_ms, key, value, headers in zip(
                    batch.offsets,
                    batch.timestamps_ms,
                    batch.keys,
                    batch.values,
                    batch.headers,
                    strict=True,
                )
            ]
        )

    return format_batch


def text_of(content: bytes | None) -> JsonBytes:
    """Return UTF-8 as a string, and other bytes as `{"base64": "..."}`."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return _base64_of(content)


def _base64_of(content: bytes | None) -> JsonBytes:
    return None if content is None else {"base64": b64encode(content).decode("ascii")}
