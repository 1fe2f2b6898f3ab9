"""Checks of messages answer with the texts of SQS."""

import pytest

from tidelog.gateway.sqs.message_checks import (
    MESSAGE_BYTES_MAX,
    check_attributes,
    check_batch_size,
    check_delay,
    check_id,
    checked_batch,
    checked_body,
    checked_trace,
    size_of,
)
from tidelog.gateway.sqs.protocol.errors import SqsError
from tidelog.gateway.sqs.protocol.requests import DeleteEntry, MessageAttribute


def string(value: str | None, kind: str | None = "String") -> MessageAttribute:
    return MessageAttribute(kind, string_value=value)


@pytest.mark.parametrize(
    "body", ["a", " ", "\t\n\r", "\ud7ff\ue000\ufffd", "\U0010ffff", "a" * 300]
)
def test_bodies_of_allowed_characters(body: str) -> None:
    assert checked_body(body) == body.encode()


@pytest.mark.parametrize("character", ["\x00", "\x08", "\x1f", "\ud800", "\ufffe", "\uffff"])
def test_other_characters_are_refused(character: str) -> None:
    with pytest.raises(SqsError, match="Invalid characters found") as caught:
        checked_body(f"text {character}")
    assert caught.value.shape.query_code == "InvalidMessageContents"


@pytest.mark.parametrize("body", [None, ""])
def test_a_body_is_needed(body: str | None) -> None:
    with pytest.raises(SqsError, match="must contain the parameter MessageBody") as caught:
        checked_body(body)
    assert caught.value.shape.query_code == "MissingParameter"


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("a" * 256, string("x")),
        ("Help.Me-now_1", string("x", "String.json")),
        ("n", string("-1.5e10", "Number")),
        ("n", string("1e126", "Number.float")),
        ("n", string("1e-128", "Number")),
        ("n", string("0", "Number")),
        ("n", string("9" * 38, "Number")),
        ("b", MessageAttribute("Binary.gif", binary_value=b"\x00")),
        ("AWSName", string("x")),
        ("gr\u00fc\u00dfe", string("x")),
    ],
)
def test_attributes_that_are_valid(name: str, attribute: MessageAttribute) -> None:
    check_attributes({name: attribute})


@pytest.mark.parametrize(
    ("name", "attribute", "text"),
    [
        ("", string("x"), "attribute names must be shorter than 256 Bytes"),
        ("a" * 257, string("x"), "attribute names must be shorter than 256 Bytes"),
        ("a b", string("x"), "attributes name can only contain"),
        ("aws.x", string("x"), "reserved for internal use"),
        ("Amazon.x", string("x"), "reserved for internal use"),
        (".x", string("x"), "cannot start or end with"),
        ("x.", string("x"), "cannot start or end with"),
        ("x..y", string("x"), "cannot start or end with"),
        ("a", string("x", None), "attribute 'a' must contain a non-empty attribute type"),
        ("a", string("x", "Text"), "The type of message .user. attribute 'a' is invalid"),
        ("a", string("x", "String."), "The type of message .user. attribute 'a' is invalid"),
        ("a", string("x", "String." + "b" * 256), "types must be shorter than 256 Bytes"),
        ("a", string(""), "attribute 'a' must contain a non-empty value of type 'String'"),
        ("a", string("x", "Binary"), "with type 'Binary' must use field 'Binary'"),
        ("a", MessageAttribute("Number", binary_value=b"1"), "must use field 'String'"),
        ("a", string("x\x00"), "Invalid characters found"),
        ("a", string("one", "Number"), "Can't cast the value of message .user. attribute 'a'"),
        ("a", string("1e127", "Number"), "Can't cast the value"),
        ("a", string("1e-129", "Number"), "Can't cast the value"),
        ("a", string("9" * 39, "Number"), "Can't cast the value"),
        ("a", string(".", "Number"), "Can't cast the value"),
        ("a", string("\u0661", "Number"), "Can't cast the value"),
        (
            "a",
            MessageAttribute("String", string_value="x", string_list_values=["y"]),
            "list values in SendMessage operation are not supported",
        ),
    ],
)
def test_attributes_that_are_not(name: str, attribute: MessageAttribute, text: str) -> None:
    with pytest.raises(SqsError, match=text) as caught:
        check_attributes({name: attribute})
    assert caught.value.shape.query_code == "InvalidParameterValue"


def test_a_message_has_ten_attributes_at_most() -> None:
    check_attributes({f"a{number}": string("x") for number in range(10)})
    with pytest.raises(SqsError, match=r"Number of message attributes \[11\] exceeds"):
        check_attributes({f"a{number}": string("x") for number in range(11)})


def test_names_types_and_values_count() -> None:
    attributes = {
        "name": string("\u00fc"),
        "raw": MessageAttribute("Binary", binary_value=b"\x00" * 10),
    }
    assert size_of(attributes) == (4 + 6 + 2) + (3 + 6 + 10)


def test_the_trace_header_is_the_only_system_attribute_of_senders() -> None:
    assert checked_trace({"AWSTraceHeader": string("Root=1-5759e988")}) == "Root=1-5759e988"
    with pytest.raises(SqsError, match="'SenderId' is invalid"):
        checked_trace({"SenderId": string("me")})
    with pytest.raises(SqsError, match="must be of type String"):
        checked_trace({"AWSTraceHeader": string("1", "Number")})


@pytest.mark.parametrize("seconds", [-1, 901])
def test_delays_have_a_limit(seconds: int) -> None:
    text = f"Value {seconds} for parameter DelaySeconds is invalid. Reason: DelaySeconds must be"
    with pytest.raises(SqsError, match=text):
        check_delay(seconds)


@pytest.mark.parametrize("given", ["", "a b", "a" * 129, "\u00fc", "a\n"])
def test_ids_are_printable(given: str) -> None:
    with pytest.raises(SqsError, match="alphanumeric and punctuation characters"):
        check_id(given, "MessageGroupId")


def test_ids_have_up_to_128_characters() -> None:
    check_id("!" * 128, "MessageGroupId")
    check_id("~Az09#", "MessageDeduplicationId")
    check_id(None, "MessageDeduplicationId")


@pytest.mark.parametrize(
    ("ids", "code", "text"),
    [
        ([], "EmptyBatchRequest", "There should be at least one DeleteMessageBatchRequestEntry"),
        (
            [str(number) for number in range(11)],
            "TooManyEntriesInBatchRequest",
            "Maximum number of entries per request are 10. You have sent 11.",
        ),
        (["a", "b", "a"], "BatchEntryIdsNotDistinct", "Id a repeated."),
        (["a:b"], "InvalidBatchEntryId", "A batch entry id can only contain"),
        (["a" * 81], "InvalidBatchEntryId", "A batch entry id can only contain"),
        ([""], "InvalidBatchEntryId", "A batch entry id can only contain"),
        (["a", None], "MissingParameter", "DeleteMessageBatchRequestEntry.2.Id"),
    ],
)
def test_batches_that_are_refused_as_a_whole(ids: list[str | None], code: str, text: str) -> None:
    with pytest.raises(SqsError, match=text) as caught:
        checked_batch([DeleteEntry(each, "h") for each in ids], "DeleteMessageBatchRequestEntry")
    assert caught.value.shape.query_code.removeprefix("AWS.SimpleQueueService.") == code


def test_the_messages_of_a_batch_have_one_limit_together() -> None:
    check_batch_size([MESSAGE_BYTES_MAX - 1, 1])
    text = f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent 1048577"
    with pytest.raises(SqsError, match=text):
        check_batch_size([MESSAGE_BYTES_MAX, 1])
