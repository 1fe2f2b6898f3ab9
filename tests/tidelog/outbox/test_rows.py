"""Rows and their records."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.outbox.errors import OutboxRowError
from tidelog.outbox.rows import (
    OutboxMessage,
    OutboxRow,
    decode_headers,
    encode_headers,
    record_of,
    values_of,
)
from tidelog.wire.batch.message_id import message_id_in

ROW = OutboxRow(7, "orders", None, b"k", b"v", None, 1_500_999)


@given(st.lists(st.tuples(st.text(), st.binary())))
def test_headers_come_back(headers: list[tuple[str, bytes]]) -> None:
    assert decode_headers(encode_headers(headers)) == tuple(headers)


def test_text_headers_are_readable_and_may_be_written_by_sql() -> None:
    assert encode_headers([("a", b"text")]) == '[["a","text"]]'
    assert decode_headers('[["a", "text"], ["b", "/w==", "base64"]]') == (
        ("a", b"text"),
        ("b", b"\xff"),
    )


def test_a_record_has_the_id_of_its_row_and_the_time_of_the_insert() -> None:
    record = record_of(ROW, "outbox:1")

    assert (record.topic, record.key, record.value) == ("orders", b"k", b"v")
    assert record.headers == (("tidelog-message-id", b"outbox:1:7"),)
    assert record.timestamp_ms == 1500


def test_a_message_id_of_the_application_is_kept() -> None:
    headers = '[["tidelog-message-id", "invoice-7"]]'

    record = record_of(ROW._replace(headers=headers), "outbox:1")

    assert record.headers == (("tidelog-message-id", b"invoice-7"),)


def test_a_message_id_that_is_no_text_does_not_count() -> None:
    headers = '[["tidelog-message-id", "/w==", "base64"]]'

    record = record_of(ROW._replace(headers=headers), "outbox:1")

    assert message_id_in(record.headers) == "outbox:1:7"


@pytest.mark.parametrize(
    "headers", ["{}", '{"a": "b"}', '[["a"]]', '[["a", 1]]', '[["a", "b", "hex"]]', "no json",
                '[["a", "!", "base64"]]'],
)  # fmt: skip
def test_headers_that_are_no_headers_name_the_row(headers: str) -> None:
    with pytest.raises(OutboxRowError, match="row 7 cannot be sent: its headers") as failure:
        record_of(ROW._replace(headers=headers), "outbox:1")

    assert failure.value.row_id == 7


def test_a_message_is_checked_at_its_insert() -> None:
    assert values_of(OutboxMessage("orders", bytearray(b"v"), b"k", 3, [("a", b"b")])) == (  # type: ignore[arg-type]
        "orders",
        3,
        b"k",
        b"v",
        '[["a","b"]]',
    )
    for message, error, text in [
        (OutboxMessage("orders", "text"), TypeError, "a value must be bytes or None, not str"),  # type: ignore[arg-type]
        (OutboxMessage(b"orders", b"v"), TypeError, "a topic is a str, not bytes"),  # type: ignore[arg-type]
        (OutboxMessage("", b"v"), ValueError, "the topic is empty"),
        (OutboxMessage("orders", b"v", partition=-1), ValueError, "partition is -1"),
        (OutboxMessage("orders", b"v", headers=[("a", "b")]), TypeError, "headers must be"),  # type: ignore[list-item]
    ]:
        with pytest.raises(error, match=text):
            values_of(message)
