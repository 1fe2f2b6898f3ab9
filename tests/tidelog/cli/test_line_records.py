"""Records from lines, and the way from `consume` back to `produce`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tidelog.cli.output.test_record_format import FIRST_MS, batch_of
from tidelog.cli.line_records import TextLines, parse_json
from tidelog.cli.output.record_format import FieldText, json_format, raw_format

FIELDS = st.none() | st.binary(max_size=9) | st.text(max_size=9).map(str.encode)
HEADERS = st.lists(st.tuples(st.text(max_size=5), st.binary(max_size=5)), max_size=2)


@given(key=FIELDS, value=FIELDS, headers=HEADERS)
def test_json_copies_every_record(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes]]
) -> None:
    batch = batch_of([value], keys=[key], headers=[tuple(headers)])

    (line,) = json_format()(batch).splitlines()

    assert list(parse_json([line])) == [(key, value, headers, FIRST_MS)]


@given(key=FIELDS, value=FIELDS)
def test_base64_with_a_text_for_absent_fields_copies_every_key_and_value(
    key: bytes | None, value: bytes | None
) -> None:
    batch = batch_of([value], keys=[key])
    fields = FieldText(null=b"NULL!", key_encoding="base64", value_encoding="base64")

    line = raw_format(b":", fields)(batch).removesuffix(b"\n")

    lines = TextLines(separator=b":", null=b"NULL!", key_encoding="base64", value_encoding="base64")
    assert list(lines.parse([line])) == [(key, value, None, None)]


@pytest.mark.parametrize(
    ("lines", "line", "record"),
    [
        (TextLines(), b"a:1", (None, b"a:1")),
        (TextLines(separator=b":"), b"a:1:2", (b"a", b"1:2")),
        (TextLines(separator=b":"), b":1", (None, b"1")),
        (TextLines(separator=b":"), b"a:", (b"a", b"")),
        (TextLines(null=b""), b"", (None, None)),
        (TextLines(separator=b":", null=b"NULL"), b"a:NULL", (b"a", None)),
        (TextLines(separator=b":", null=b"NULL"), b"NULL:1", (None, b"1")),
        (TextLines(separator=b":", null=b"NULL"), b":1", (b"", b"1")),
    ],
)
def test_a_line_has_a_key_and_a_value(
    lines: TextLines, line: bytes, record: tuple[bytes | None, bytes | None]
) -> None:
    assert list(lines.parse([line, line])) == [(*record, None, None)] * 2


@pytest.mark.parametrize(
    ("lines", "line", "complaint"),
    [
        (TextLines(separator=b":"), b"a", "has no key separator ':'"),
        (TextLines(value_encoding="base64"), b"a", "has no base64"),
        (TextLines(value_encoding="base64"), b"a\xff==", "has no base64"),
    ],
)
def test_a_line_of_another_form_is_rejected(lines: TextLines, line: bytes, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        list(lines.parse([line]))


def test_an_object_may_have_a_value_alone() -> None:
    lines = [b'{"value": "x", "offset": 7, "more": []}']

    assert list(parse_json(lines)) == [(None, b"x", None, None)]


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"x",
        b"[]",
        b'{"key": "k"}',
        b'{"value": 5}',
        b'{"value": {"base64": "?"}}',
        b'{"value": {"base64": "", "x": 1}}',
        b'{"value": "\xff"}',
        b'{"value": "", "headers": {"a": "b"}}',
        b'{"value": "", "headers": [{"name": "a", "value": null}]}',
        b'{"value": "\\ud800"}',
    ],
)
def test_what_is_no_record_in_json_is_rejected(line: bytes) -> None:
    with pytest.raises(ValueError, match="is no record in JSON: "):
        list(parse_json([line]))
