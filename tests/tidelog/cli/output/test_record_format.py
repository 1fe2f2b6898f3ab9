"""Records as lines."""

import json
from collections.abc import Sequence

import pytest

from tidelog.cli.output.record_format import json_format, raw_format
from tidelog.client.consumer.fetch.record import RecordBatch
from tidelog.client.topic_partition import TopicPartition
from tidelog.wire.batch.record_batch import Columns, Headers, encode_batch, parse_header

FIRST_MS = 1_700_000_000_000


def batch_of(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers] | None = None,
) -> RecordBatch:
    encoded = encode_batch(
        Columns(len(values), keys=keys, values=values, headers=headers),
        first_timestamp_ms=FIRST_MS,
    )
    header = parse_header(encoded)
    assert header is not None
    at = TopicPartition("orders", 2)
    return RecordBatch(at, header, encoded, high_watermark=9, uncompressed_bytes_max=1 << 20)


@pytest.mark.parametrize(
    ("values", "lines"),
    [
        ([b"a"], b"a\n"),
        ([b"a", b"", b"\xff"], b"a\n\n\xff\n"),
        ([b"a", None, b"c"], b"a\n\nc\n"),
    ],
)
def test_a_raw_line_is_the_value(values: list[bytes | None], lines: bytes) -> None:
    assert raw_format(None)(batch_of(values)) == lines


def test_a_raw_line_may_begin_with_the_key() -> None:
    batch = batch_of([b"1", b"2", None], keys=[b"a", None, b"c"])

    assert raw_format(b"=>")(batch) == b"a=>1\n=>2\nc=>\n"


def test_a_part_of_a_batch_is_only_its_lines() -> None:
    assert raw_format(None)(batch_of([b"a", b"b", b"c"]).between(1, 2)) == b"b\n"


def test_a_json_line_has_everything() -> None:
    batch = batch_of([b"1", None], keys=[b"k", None], headers=[(("h", b"x"), ("h", b"\xff")), ()])

    lines = [json.loads(line) for line in json_format(batch).splitlines()]

    place = {"topic": "orders", "partition": 2, "timestamp_ms": FIRST_MS}
    assert lines == [
        {
            **place,
            "offset": 0,
            "key": "k",
            "value": "1",
            "headers": [{"name": "h", "value": "x"}, {"name": "h", "value": {"base64": "/w=="}}],
        },
        {**place, "offset": 1, "key": None, "value": None, "headers": []},
    ]


def test_a_line_end_in_a_value_does_not_end_a_json_line() -> None:
    assert json_format(batch_of([b"a\nb"])).count(b"\n") == 1
