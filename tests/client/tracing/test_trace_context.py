"""Trace context in headers."""

import pytest

from tidelog.client.tracing.trace_context import (
    carrier_of,
    has_context,
    headers_of,
    parse_trace_id,
    trace_id_of,
    with_context,
)

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def test_a_context_goes_through_headers() -> None:
    carrier = {"tracestate": "a=1", "traceparent": PARENT, "baggage": "b=2"}

    headers = headers_of(carrier)

    assert headers == (("traceparent", PARENT.encode()), ("tracestate", b"a=1"))
    assert carrier_of((("x", b"1"), *headers)) == {"traceparent": PARENT, "tracestate": "a=1"}
    assert trace_id_of(headers) == TRACE


def test_the_context_of_the_application_is_kept() -> None:
    own = [("traceparent", b"own")]
    added = headers_of({"traceparent": PARENT})

    assert with_context(own, added) == tuple(own)
    assert with_context([("x", b"1")], added) == (("x", b"1"), *added)
    assert not has_context([("x", b"1"), "traceparent", 7])


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\xff",
        PARENT[:-3].encode(),
        PARENT.replace(TRACE, "0" * 32).encode(),
        PARENT.upper().encode(),
        b"x" + PARENT.encode(),
    ],
)
def test_a_malformed_context_has_no_trace_id(value: bytes) -> None:
    assert trace_id_of((("traceparent", value),)) is None


def test_a_later_version_may_have_more_fields() -> None:
    assert trace_id_of((("traceparent", f"01-{PARENT[3:]}-more".encode()),)) == TRACE


def test_a_trace_id_is_parsed_or_refused() -> None:
    assert parse_trace_id(f" {TRACE.upper()}\n") == TRACE
    for text in ("", TRACE[1:], f"{TRACE}0", "g" * 32, "0" * 32):
        with pytest.raises(ValueError, match="32 hexadecimal digits"):
            parse_trace_id(text)
