"""Trace context in the headers of records (W3C Trace Context: `traceparent`, `tracestate`).

Pure: no clock, no I/O, no OpenTelemetry.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar, cast

from tidelog.wire.batch.record_batch import Headers

TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
_FIELDS: Final = (TRACEPARENT, TRACESTATE)
_TRACE_ID: Final = re.compile(r"[0-9a-f]{32}")
Item = TypeVar("Item")
_NO_TRACE: Final = "0" * 32
_PARENT: Final = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(?:-.*)?")


def carrier_of(headers: Headers) -> dict[str, str]:
    """Return the fields of the trace context in headers; the last one of a name counts."""
    return {name: value.decode("ascii", "replace") for name, value in headers if name in _FIELDS}


def headers_of(carrier: Mapping[str, str]) -> Headers:
    """Return the fields of a trace context as headers."""
    return tuple((name, carrier[name].encode()) for name in _FIELDS if name in carrier)


def has_context(headers: Iterable[object]) -> bool:
    """Return whether headers, perhaps malformed ones of an application, have a trace context."""
    return any(
        isinstance(header, tuple) and cast("tuple[object, ...]", header)[:1] == (TRACEPARENT,)
        for header in headers
    )


def with_context(headers: Iterable[Item], context: Iterable[Item]) -> tuple[Item, ...]:
    """Return headers with a trace context, unless they have one: the application's is kept."""
    given = tuple(headers)
    return given if has_context(given) else (*given, *context)


def trace_id_of(headers: Headers) -> str | None:
    """Return the trace id in headers, 32 hexadecimal digits; `None` without a valid one."""
    found = None
    for name, value in headers:
        if name == TRACEPARENT:
            match = _PARENT.fullmatch(value)
            found = None if match is None else match[1].decode()
    return None if found == _NO_TRACE else found


def parse_trace_id(text: str) -> str:
    """Return a trace id in lower case.

    Raises:
        ValueError: The text is no trace id.
    """
    trace_id = text.strip().lower()
    if not _TRACE_ID.fullmatch(trace_id) or trace_id == _NO_TRACE:
        raise ValueError(f"no trace id: {text!r}; it has 32 hexadecimal digits, not all of them 0")
    return trace_id
