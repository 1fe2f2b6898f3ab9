"""Tests of the headers of large messages and their chunks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.wire.batch.large_messages import (
    LARGE_MESSAGE_BYTES_MAX,
    ChunkMap,
    chunk_header,
    chunks_header,
    chunks_of,
    is_chunk,
    is_chunk_of,
    is_large,
    length_of,
    runs_of,
    with_chunks,
)
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queues import CHUNKS_HEADER

BODY = "00ff00ff00ff00ff"
runs = st.lists(st.tuples(st.integers(0, 1 << 62), st.integers(1, 1000)), max_size=5)


@given(runs=runs, length=st.integers(10_000, LARGE_MESSAGE_BYTES_MAX))
def test_what_is_written_is_read(runs: list[tuple[int, int]], length: int) -> None:
    chunks = ChunkMap(BODY, length, tuple(runs))

    header = chunks_header(chunks)

    assert chunks_of([("other", b""), header]) == chunks
    assert chunks.is_lost is (not runs)


def test_the_page_of_the_format_shows_these_headers() -> None:
    assert chunk_header(BODY, 2) == ("tidelog.chunk", b"00ff00ff00ff00ff 2")
    assert chunks_header(ChunkMap(BODY, 1_300_000, ((41, 2), (44, 1)))) == (
        "tidelog.chunks",
        b"1300000 00ff00ff00ff00ff 41+2,44+1",
    )
    assert chunks_header(ChunkMap(BODY, 5, ()))[1] == b"5 00ff00ff00ff00ff -"


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"5 00ff00ff00ff00ff",
        b"0 00ff00ff00ff00ff 1+1",
        b"-5 00ff00ff00ff00ff 1+1",
        b"1073741825 00ff00ff00ff00ff 1+1",
        b"5 00FF00ff00ff00ff 1+1",
        b"5 00ff 1+1",
        b"5 00ff00ff00ff00ff ",
        b"5 00ff00ff00ff00ff 1",
        b"5 00ff00ff00ff00ff 1+0",
        b"5 00ff00ff00ff00ff 1+6",
        b"5 00ff00ff00ff00ff 1+1,",
        b"5 00ff00ff00ff00ff x+1",
        b"5 00ff00ff00ff00ff 1+1 more",
        b"5 00ff00ff00ff00ff 99999999999999999999999999+1",
    ],
)
def test_other_values_are_refused(value: bytes) -> None:
    with pytest.raises(WireFormatError):
        chunks_of([(CHUNKS_HEADER, value)])
    assert is_large([(CHUNKS_HEADER, value)])


@pytest.mark.parametrize(
    ("value", "chunks"),
    [
        (b"1 0123456789abcdef 0+1", ChunkMap("0123456789abcdef", 1, ((0, 1),))),
        (b"5 00ff00ff00ff00ff 1+5", ChunkMap(BODY, 5, ((1, 5),))),
        (b"1073741824 00ff00ff00ff00ff -", ChunkMap(BODY, 1 << 30, ())),
        (b"5 00ff00ff00ff00ff 9999999999999999999+1", ChunkMap(BODY, 5, ((10**19 - 1, 1),))),
    ],
)
def test_a_header_at_a_limit_is_accepted(value: bytes, chunks: ChunkMap) -> None:
    assert chunks_of([(CHUNKS_HEADER, value)]) == chunks


@pytest.mark.parametrize(
    "value",
    [
        b"0 00ff00ff00ff00ff -",
        b"5 00ff00ff00ff00f 1+1",
        b"5 00ff00ff00ff00fff 1+1",
        b"5 00ff00ff00ff00fg 1+1",
        b"5 00ff00ff00ff00ff 10000000000000000000+1",
        b"5 00ff00ff00ff00ff 1+3,9+3",
        b"5 00ff00ff00ff00ff 1-1",
    ],
)
def test_a_header_beyond_a_limit_is_refused(value: bytes) -> None:
    with pytest.raises(WireFormatError, match=r"malformed tidelog\.chunks header"):
        chunks_of([(CHUNKS_HEADER, value)])


def test_a_chunk_is_known_by_the_body_its_index_and_its_end() -> None:
    chunks = ChunkMap(BODY, 100, ((7, 3),))
    headers = [("other", b""), chunk_header(BODY, 2)]

    assert is_chunk_of(chunks, headers, index=2, end=100)
    assert is_chunk_of(chunks, headers, index=2, end=1)
    assert not is_chunk_of(chunks, headers, index=2, end=101), "it ends behind the message"
    assert not is_chunk_of(chunks, headers, index=1, end=100), "it is another chunk"
    assert not is_chunk_of(chunks, [chunk_header("0" * 16, 2)], index=2, end=100)


def test_the_length_of_a_message_is_that_of_its_value_or_of_its_chunks() -> None:
    large = [chunks_header(ChunkMap(BODY, 1000, ((7, 3),)))]

    assert length_of(b"abc", []) == 3
    assert length_of(None, []) == length_of(b"", []) == 0
    assert length_of(None, large) == length_of(b"", large) == 1000
    assert length_of(b"abc", large) == 3, "a value is never in chunks"
    assert length_of(b"", [(CHUNKS_HEADER, b"malformed")]) == 0


def test_the_number_of_chunks_is_that_of_all_runs() -> None:
    assert ChunkMap(BODY, 9, ((1, 2), (7, 3))).chunk_count == 5


def test_other_records_are_neither_chunks_nor_large_messages() -> None:
    headers = (("a", b"b"), ("tidelog.priority", b"1"))

    assert chunks_of(headers) is None
    assert not is_large(headers)
    assert not is_chunk(headers)
    assert is_chunk([chunk_header(BODY, 0)])


def test_offsets_that_follow_each_other_are_one_run() -> None:
    assert runs_of([5, 6, 7, 2, 3, 9]) == ((5, 3), (2, 2), (9, 1))
    assert runs_of([]) == ()


def test_with_chunks_replaces_the_chunk_map() -> None:
    before, after = ChunkMap(BODY, 9, ((1, 2),)), ChunkMap(BODY, 9, ((7, 2),))
    headers = (("a", b"b"), chunks_header(before))

    assert chunks_of(with_chunks(headers, after)) == after
    assert with_chunks(headers, after)[0] == ("a", b"b")
