"""The formatters of records as lines of text.

Pure: no clock, no I/O. Works by column and avoids a Python step per record.
"""

from base64 import b64encode
from collections.abc import Callable, Iterable

import msgspec

from tidelog.client.consumer.fetch.record import RecordBatch

FormatBatch = Callable[[RecordBatch], bytes]
"""A function that returns the lines of all records of a batch."""

_json_encoder = msgspec.json.Encoder()


def raw_format(key_separator: bytes | None) -> FormatBatch:
    """Return a formatter that writes each value on a line, after its key if there is a separator.

    A missing key or value is empty: `produce` with the same separator reads it back.
    """

    def format_values(batch: RecordBatch) -> bytes:
        return b"\n".join([*_without_none(batch.values), b""])

    def format_keys_and_values(batch: RecordBatch) -> bytes:
        assert key_separator is not None
        columns = zip(_without_none(batch.keys), _without_none(batch.values), strict=True)
        return b"\n".join([*map(key_separator.join, columns), b""])

    return format_values if key_separator is None else format_keys_and_values


def json_format(batch: RecordBatch) -> bytes:
    """Return each record as one JSON object; see `text_of` for bytes that are not text."""
    return _json_encoder.encode_lines(
        [
            {
                "topic": batch.topic,
                "partition": batch.partition,
                "offset": offset,
                "timestamp_ms": timestamp_ms,
                "key": text_of(key),
                "value": text_of(value),
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


def text_of(content: bytes | None) -> str | dict[str, str] | None:
    """Return UTF-8 as a string, and other bytes as `{"base64": "..."}`."""
    if content is None:
        return None
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": b64encode(content).decode("ascii")}


def _without_none(column: Iterable[bytes | None]) -> Iterable[bytes]:
    return (item or b"" for item in column)
