"""Records as lines."""

import json
from collections.abc import Sequence

import pytest

from tidelog.cli.output.record_format import FieldText, json_format, raw_format, token_format
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

    lines = [json.loads(line) for line in json_format()(batch).splitlines()]

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
    assert json_format()(batch_of([b"a\nb"])).count(b"\n") == 1


def test_an_absent_field_has_a_text_of_its_own() -> None:
    batch = batch_of([b"", None, b"c"], keys=[b"a", b"", None])
    fields = FieldText(null=b"NULL")

    assert raw_format(b":", fields)(batch) == b"a:\n:NULL\nNULL:c\n"


def test_keys_and_values_may_be_base64() -> None:
    batch = batch_of([b"\n\xff", None], keys=[b"k", b""])
    fields = FieldText(key_encoding="base64", value_encoding="base64", null=b"-")

    assert raw_format(b":", fields)(batch) == b"aw==:Cv8=\n:-\n"
    assert token_format(b"%k %s|", fields)(batch) == b"aw== Cv8=| -|"
    first, second = map(json.loads, json_format(fields)(batch).splitlines())
    assert (first["key"], first["value"]) == ({"base64": "aw=="}, {"base64": "Cv8="})
    assert (second["key"], second["value"]) == ({"base64": ""}, None)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        (rb"%s\n", b"1\n\n"),
        (rb"%v\n", b"1\n\n"),
        (rb"%k=%s;", b"k%=1;=;"),
        (rb"%t/%p@%o\n", b"orders/2@0\norders/2@1\n"),
        (rb"%T %K %S\n", b"1700000000000 2 1\n1700000000000 -1 -1\n"),
        (rb"%R%s", b"\0\0\0\x011\xff\xff\xff\xff"),
        (rb"%h\n", b"h=x,h=\xff\n\n"),
        (rb"100%% \\ \x41\t\r\0%p", b"100% \\ A\t\r\x002100% \\ A\t\r\x002"),
        (b"%s \xc3\xa4", b"1 \xc3\xa4 \xc3\xa4"),
        (rb"%p", b"22"),
    ],
)
def test_a_format_has_the_tokens_of_kcat(text: bytes, lines: bytes) -> None:
    batch = batch_of([b"1", None], keys=[b"k%", None], headers=[(("h", b"x"), ("h", b"\xff")), ()])

    assert token_format(text, FieldText())(batch) == lines


@pytest.mark.parametrize("text", [b"%q", b"%s%", b"%\n", rb"\q", rb"\x4", b"\\"])
def test_an_unknown_token_or_escape_is_an_error(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"is no (token|escape): "):
        token_format(text, FieldText())


def test_a_part_of_a_batch_is_formatted_alone() -> None:
    part = batch_of([b"a", b"b", b"c"]).between(1, 2)

    assert token_format(rb"%o:%s ", FieldText())(part) == b"1:b "
