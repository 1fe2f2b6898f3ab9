"""Requests from bytes, as the parser of the SQS front finds them."""

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.gateway.sqs.http.request_parser import (
    BODY_MAX_BYTES,
    HEAD_MAX_BYTES,
    RequestParser,
)

POST = b"POST /q HTTP/1.1\r\nHost: a:1\r\nX-A:  one \r\nx-a: two\r\nContent-Length: 4\r\n\r\nbody"
CHUNKED = (
    b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nbo\r\n2;some=extension\r\ndy\r\n0\r\nTrailer: x\r\n\r\n"
)


def fed(data: bytes, *, at_once: int = 1 << 20) -> RequestParser:
    parser = RequestParser()
    for start in range(0, len(data), at_once):
        parser.feed(memoryview(data)[start : start + at_once])
    return parser


@pytest.mark.parametrize("at_once", [1, 2, 3, 7, 1_000])
def test_a_request_may_arrive_in_any_pieces(at_once: int) -> None:
    parser = fed(POST + POST, at_once=at_once)

    first, second = parser.requests
    assert first == second
    request = first.request
    assert (request.method, request.target, request.body) == (b"POST", b"/q", b"body")
    assert request.headers[b"x-a"].split(b",")[1] == b"two"
    assert request.headers[b"host"] == b"a:1"
    assert first.keeps_alive
    assert parser.is_between


@pytest.mark.parametrize("at_once", [1, 5, 1_000])
def test_a_body_may_come_in_chunks(at_once: int) -> None:
    parser = fed(CHUNKED + POST, at_once=at_once)

    assert [each.request.body for each in parser.requests] == [b"body", b"body"]


def test_fields_behind_a_body_do_not_replace_headers() -> None:
    head = b"POST / HTTP/1.1\r\nHost: a\r\n"
    data = CHUNKED.replace(b"POST / HTTP/1.1\r\n", head).replace(b"Trailer: x", b"Host: x\r\nA: x")
    (parsed,) = fed(data).requests

    assert parsed.request.headers == {b"host": b"a", b"transfer-encoding": b"chunked"}


@pytest.mark.parametrize(
    "begin", [b"2\r\n{}\r\n0\r\nX-Trailer: ", b"2\r\n{}\r\n2;extension="], ids=["field", "chunk"]
)
def test_what_a_client_sends_beside_a_body_is_limited_too(begin: bytes) -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    allowed = head + begin + b"a" * (HEAD_MAX_BYTES - 3_000)
    assert fed(allowed, at_once=1_000).refusal is None

    refusal = fed(allowed + b"a" * 5_000, at_once=1_000).refusal

    assert refusal is not None
    assert refusal.status == 431


def test_a_body_of_small_chunks_takes_no_more_memory_than_its_bytes() -> None:
    head = b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
    chunks = b"".join(b"2\r\n%02d\r\n" % (each % 100) for each in range(20_000))
    parser = RequestParser()
    tracemalloc.start()
    try:
        parser.feed(memoryview(head + chunks))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    parser.feed(memoryview(b"0\r\n\r\n"))

    assert held < 2 * 40_000 + (64 << 10)
    assert len(parser.requests[0].request.body) == 40_000


@pytest.mark.parametrize(
    ("head", "keeps_alive"),
    [
        (b"GET / HTTP/1.1\r\n", True),
        (b"GET / HTTP/1.1\r\nConnection: close\r\n", False),
        (b"GET / HTTP/1.0\r\n", False),
        (b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n", True),
    ],
)
def test_a_request_says_whether_another_one_follows(head: bytes, *, keeps_alive: bool) -> None:
    (parsed,) = fed(head + b"\r\n").requests

    assert parsed.keeps_alive is keeps_alive


def test_an_offer_of_another_protocol_is_declined() -> None:
    offer = b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\nrest"

    parser = fed(offer)

    (parsed,) = parser.requests
    assert not parsed.keeps_alive
    assert parser.refusal is None


def test_a_client_may_wait_for_leave_to_send_its_body() -> None:
    head = b"POST / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n"
    waiting = fed(head)
    assert waiting.wants_continue
    assert not waiting.is_between

    complete = fed(head + b"hi", at_once=len(head))
    assert not complete.wants_continue
    assert complete.requests[0].request.body == b"hi"

    assert not fed(head.replace(b"HTTP/1.1", b"HTTP/1.0")).wants_continue


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"\x16\x03\x01 hello of TLS", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_MAX_BYTES + 1), 413),
        (b"GET / HTTP/1.1\r\nX: " + b"y" * HEAD_MAX_BYTES, 431),
        (b"GET / HTTP/1.1\r\n" + b"".join(b"X%d: y\r\n" % each for each in range(200)), 431),
    ],
)
def test_a_bad_request_is_refused_after_those_before_it(data: bytes, status: int) -> None:
    parser = fed(POST + data)

    assert len(parser.requests) == 1
    assert parser.refusal is not None
    assert parser.refusal.status == status


def test_chunks_have_the_limit_of_a_body() -> None:
    chunk = b"100000\r\n" + b"x" * 0x100000 + b"\r\n"
    parser = fed(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk * 9)

    assert parser.refusal is not None
    assert parser.refusal.status == 413


PARTS = st.lists(
    st.sampled_from([POST, CHUNKED, b"GET / HTTP/1.1\r\n\r\n", b"\r\n", b"POST ", b"0", b": "])
    | st.binary(max_size=8),
    max_size=6,
).map(b"".join)


@given(PARTS, st.integers(1, 40))
def test_any_bytes_make_the_same_requests_in_any_pieces(data: bytes, at_once: int) -> None:
    whole, pieces = fed(data), fed(data, at_once=at_once)

    assert pieces.requests == whole.requests
    assert (pieces.refusal is None) is (whole.refusal is None)
    assert pieces.is_between is whole.is_between
