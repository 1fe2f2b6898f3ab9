"""Messages as records."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.gateway.sqs.message_record import (
    SENDER_HEADER,
    attributes_in,
    body_of,
    has_forbidden,
    header_in,
    message_id_of,
    message_of_record,
    moved_message_id,
    record_of_message,
    sequence_number_of,
)
from tidelog.gateway.sqs.protocol.requests import MessageAttribute
from tidelog.wire.batch.message_id import MESSAGE_ID_HEADER, record_id

TOPIC_ID = bytes(range(16))
SENDER = ((SENDER_HEADER, b"AIDA"),)


def test_attributes_survive() -> None:
    attributes = {
        "plain": MessageAttribute("String", string_value="text"),
        "labelled": MessageAttribute("String.json", string_value="{}"),
        "number": MessageAttribute("Number", string_value="1.50"),
        "raw": MessageAttribute("Binary.gif", binary_value=b"\xff\x00"),
        "sqs.sender": MessageAttribute("String", string_value="not me"),
        "tidelog.deliver_at_ms": MessageAttribute("Number", string_value="1"),
    }
    value, headers = record_of_message(
        b"body", attributes, sender=((SENDER_HEADER, b"AIDA"),), trace="Root=1"
    )
    assert value == b"body"
    assert attributes_in(headers) == attributes
    assert (header_in(headers, "sqs.sender"), header_in(headers, "sqs.trace")) == ("AIDA", "Root=1")
    assert dict(headers)["number"] == b"1.50"
    assert "tidelog.deliver_at_ms" not in dict(headers)


def test_long_attributes_are_behind_the_body() -> None:
    attributes = {
        "long": MessageAttribute("Binary", binary_value=b"\x01" * 100_000),
        "tidelog.short": MessageAttribute("Number", string_value="1"),
    }
    record = record_of_message(b"body", attributes, sender=(), trace=None)
    assert record.value == b"body" + b"\x01" * 100_000 + b"1"
    assert sum(len(content) for _, content in record.headers) < 200
    message = message_of_record(record.value, record.headers)
    assert message.value == b"body"
    assert attributes_in(message.headers) == attributes


@pytest.mark.parametrize("described", [b"no json", b"[3,[]]", b'[-1,[["a",5]]]'])
def test_descriptions_by_other_programs_mean_nothing(described: bytes) -> None:
    headers = (("sqs.appended", described),)
    assert message_of_record(b"body", headers) == (b"body", headers)


def test_headers_of_native_producers_are_attributes() -> None:
    headers = (
        ("traceparent", b"00-1"),
        ("raw", b"\xff"),
        ("control", b"a\x00"),
        ("empty", b""),
        ("not a name", b"x"),
        ("tidelog.receive_count", b"3"),
        ("sqs.types", b"no json"),
    )
    assert attributes_in(headers) == {
        "traceparent": MessageAttribute("String", string_value="00-1"),
        "raw": MessageAttribute("Binary", binary_value=b"\xff"),
        "control": MessageAttribute("Binary", binary_value=b"a\x00"),
    }


@pytest.mark.difference(
    "Messages",
    cloud="A body is text.",
    here="A record of another producer may be bytes that are no text of SQS: its body is Base64,"
    " and the attribute `tidelog.encoding` is `base64`.",
    why="Programs of SQS and streams share a topic.",
)
def test_values_that_are_not_text_are_base64() -> None:
    assert body_of("\u00fc\n".encode()) == ("\u00fc\n", False)
    assert body_of(b"\xff") == ("/w==", True)
    assert body_of(b"a\x00") == ("YQA=", True)


def test_a_message_id_is_a_uuid_that_follows_from_the_place() -> None:
    ids = {message_id_of(TOPIC_ID, partition, offset) for partition in (0, 1) for offset in (0, 1)}
    assert len(ids) == 4
    assert all(str(uuid.UUID(each)) == each and uuid.UUID(each).version == 4 for each in ids)


def test_a_dead_letter_has_the_id_of_its_send() -> None:
    headers = ((MESSAGE_ID_HEADER, record_id(TOPIC_ID, 2, 7).encode()),)
    assert moved_message_id(headers) == message_id_of(TOPIC_ID, 2, 7)
    assert moved_message_id(()) is None


def test_sequence_numbers_have_the_order_of_offsets_as_text_too() -> None:
    numbers = [sequence_number_of(offset) for offset in (0, 9, 10, 2**62)]
    assert numbers == sorted(numbers)
    assert {len(number) for number in numbers} == {20}


@given(text=st.text(st.characters(max_codepoint=0x2FF, exclude_categories=())))
def test_the_characters_of_xml_are_allowed_and_no_others(text: str) -> None:
    allowed = all(each in "\t\n\r" or each >= " " for each in text)
    assert has_forbidden(text) == (not allowed)
