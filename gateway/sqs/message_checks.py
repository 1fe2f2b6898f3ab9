"""Checks of messages that are sent, with the error texts of SQS.

Pure: no clock, no I/O. Source: the Amazon SQS API Reference (SendMessage), the Developer Guide
(message quotas, message attributes), and answers of the service that are published.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, Protocol

from tidelog.gateway.sqs.message_record import has_forbidden
from tidelog.gateway.sqs.protocol.errors import (
    BATCH_ENTRY_IDS_NOT_DISTINCT,
    BATCH_REQUEST_TOO_LONG,
    EMPTY_BATCH_REQUEST,
    INVALID_BATCH_ENTRY_ID,
    INVALID_MESSAGE_CONTENTS,
    INVALID_PARAMETER_VALUE,
    TOO_MANY_ENTRIES,
    SqsError,
    invalid_value,
    missing_parameter,
)
from tidelog.gateway.sqs.protocol.requests import MessageAttribute, MessageAttributes

MESSAGE_BYTES_MAX: Final = 1 << 20
"""Maximum bytes of a message with its attributes, and of all messages of a batch."""
BATCH_COUNT_MAX: Final = 10
"""Maximum entries of a batch."""
DELAY_S_MAX: Final = 900
VISIBILITY_S_MAX: Final = 43_200
WAIT_S_MAX: Final = 20
TRACE_ATTRIBUTE: Final = "AWSTraceHeader"
"""The only message system attribute that a sender may set."""

_ATTRIBUTES_MAX: Final = 10
_NAME_LENGTH_MAX: Final = 256
_TYPE_LENGTH_MAX: Final = 256
_NUMBER_DIGITS_MAX: Final = 38
_NUMBER_EXPONENT_MAX: Final = 126
_NUMBER_EXPONENT_MIN: Final = -128
_ENTRY_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_ID: Final = re.compile("[!-~]{1,128}")
_ATTRIBUTE_NAME: Final = re.compile("[A-Za-z0-9_.\u00c0-\u017f-]+")
"""The cloud accepts Latin letters with marks, which its documentation does not name."""
_NUMBER: Final = re.compile(r"[+-]?(?=\.?\d)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,4}))?", re.ASCII)
_BINARY: Final = "Binary"
_KINDS: Final = ("String", "Number", _BINARY)
FORBIDDEN_TEXT: Final = (
    "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | #x20 to #xD7FF |"
    " #xE000 to #xFFFD | #x10000 to #x10FFFF"
)


class BatchEntry(Protocol):
    """An entry of a batch."""

    @property
    def id(self) -> str | None:
        """`Id` of the entry."""
        ...


def invalid(text: str) -> SqsError:
    """Return an `InvalidParameterValue`."""
    return SqsError(INVALID_PARAMETER_VALUE, text)


def checked_body(body: str | None) -> bytes:
    """Return the value of a message.

    Raises:
        SqsError: The body is missing, empty, or has characters that SQS does not allow.
    """
    if not body:
        raise missing_parameter("MessageBody")
    if has_forbidden(body):
        raise SqsError(INVALID_MESSAGE_CONTENTS, FORBIDDEN_TEXT)
    return body.encode()


def too_long(limit: int = MESSAGE_BYTES_MAX, *, is_entry: bool = False) -> SqsError:
    """Return the error of a message that, with its attributes, exceeds the limit of the queue.

    Args:
        limit: Limit in bytes.
        is_entry: Whether the message is an entry of a batch: the cloud has other words for it.
    """
    verdict = "cannot be validated" if is_entry else "are invalid"
    return invalid(
        f"One or more parameters {verdict}. Reason: Message must be shorter than {limit} bytes."
    )


def size_of(attributes: MessageAttributes | None) -> int:
    """Return the bytes of attributes that count for a message: names, types and values."""
    size = 0
    if attributes:
        for name, attribute in attributes.items():
            text, content = attribute.string_value, attribute.binary_value
            size += len(name.encode("utf-8", "surrogatepass")) + len(attribute.data_type or "")
            size += len((text or "").encode("utf-8", "surrogatepass")) + len(content or b"")
    return size


def check_delay(seconds: int | None) -> None:
    """Check the `DelaySeconds` of a message.

    Raises:
        SqsError: It is out of range.
    """
    if seconds is not None and not 0 <= seconds <= DELAY_S_MAX:
        reason = f"DelaySeconds must be >= 0 and <= {DELAY_S_MAX}."
        raise invalid_value(seconds, "DelaySeconds", reason)


def check_id(given: str | None, name: str) -> None:
    """Check a `MessageGroupId`, `MessageDeduplicationId` or `ReceiveRequestAttemptId`.

    Raises:
        SqsError: It is empty, too long, or has other characters than the printable ones of ASCII.
    """
    if given is not None and not _FIFO_ID.fullmatch(given):
        raise invalid_value(
            given,
            name,
            f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length.",
        )


# -- batches ---------------------------------------------------------------------------------------


def checked_batch(entries: Sequence[BatchEntry] | None, kind: str) -> list[str]:
    """Return the ids of the entries of a batch.

    Args:
        entries: Entries.
        kind: Name of their type, such as `SendMessageBatchRequestEntry`.

    Raises:
        SqsError: There are none or too many, or an id is not valid or not unique.
    """
    if not entries:
        raise SqsError(EMPTY_BATCH_REQUEST, f"There should be at least one {kind} in the request.")
    if len(entries) > BATCH_COUNT_MAX:
        raise SqsError(
            TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {BATCH_COUNT_MAX}. You have sent"
            f" {len(entries)}.",
        )
    ids: list[str] = []
    for place, entry in enumerate(entries, start=1):
        if entry.id is None:
            raise missing_parameter(f"{kind}.{place}.Id")
        if not _ENTRY_ID.fullmatch(entry.id):
            raise SqsError(
                INVALID_BATCH_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and"
                " underscores. It can be at most 80 letters long.",
            )
        if entry.id in ids:
            raise SqsError(BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry.id} repeated.")
        ids.append(entry.id)
    return ids


def check_batch_size(sizes: Iterable[int]) -> None:
    """Check the bytes of all messages of a batch.

    Raises:
        SqsError: Their sum exceeds the limit.
    """
    size = sum(sizes)
    if size > MESSAGE_BYTES_MAX:
        raise SqsError(
            BATCH_REQUEST_TOO_LONG,
            f"Batch requests cannot be longer than {MESSAGE_BYTES_MAX} bytes. You have sent"
            f" {size} bytes.",
        )


# -- attributes ------------------------------------------------------------------------------------


def check_attributes(attributes: MessageAttributes | None) -> None:
    """Check the message attributes of a message.

    Raises:
        SqsError: There are too many, or a name, type or value is not valid.
    """
    if not attributes:
        return
    if len(attributes) > _ATTRIBUTES_MAX:
        raise invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum"
            f" [{_ATTRIBUTES_MAX}]."
        )
    for name, attribute in attributes.items():
        _check_name(name)
        _check_attribute(name, attribute)


def checked_trace(attributes: MessageAttributes | None) -> str | None:
    """Return the `AWSTraceHeader` of the message system attributes of a message.

    Raises:
        SqsError: There are others, or its type or value is not valid.
    """
    if not attributes:
        return None
    for name, attribute in attributes.items():
        if name != TRACE_ATTRIBUTE:
            raise invalid(
                f"Message system attribute name '{name}' is invalid. Only {TRACE_ATTRIBUTE} is"
                " supported."
            )
        _check_attribute(name, attribute)
        if attribute.data_type != _KINDS[0]:
            raise invalid(
                f"The message system attribute '{name}' must be of type String, not"
                f" {attribute.data_type}."
            )
    return attributes[TRACE_ATTRIBUTE].string_value


def _check_name(name: str) -> None:
    if not 1 <= len(name) <= _NAME_LENGTH_MAX:
        raise invalid(
            f"Message (user) attribute names must be shorter than {_NAME_LENGTH_MAX} Bytes"
        )
    if not _ATTRIBUTE_NAME.fullmatch(name):
        raise invalid(
            "Message (user) attributes name can only contain upper and lower score characters,"
            " digits, periods, hyphens and underscores. "
        )
    is_reserved = name.lower().startswith(("aws.", "amazon."))
    if is_reserved or name.startswith(".") or name.endswith(".") or ".." in name:
        raise invalid(
            "You can't use message attribute names beginning with 'AWS.' or 'Amazon.'. These"
            " strings are reserved for internal use. Additionally, they cannot start or end with"
            " '.', or have successive ones."
        )


def _check_attribute(name: str, attribute: MessageAttribute) -> None:
    kind = attribute.data_type
    if not kind:
        raise invalid(f"Message (user) attribute '{name}' must contain a non-empty attribute type.")
    if len(kind) > _TYPE_LENGTH_MAX:
        raise invalid(
            f"Message (user) attribute types must be shorter than {_TYPE_LENGTH_MAX} Bytes"
        )
    base, dot, label = kind.partition(".")
    if base not in _KINDS or (dot and not label) or has_forbidden(label):
        raise invalid(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the"
            " following supported type prefixes: Binary, Number, String."
        )
    if attribute.string_list_values or attribute.binary_list_values:
        raise invalid("Message attribute list values in SendMessage operation are not supported.")
    field = _BINARY if base == _BINARY else "String"
    text, content = attribute.string_value, attribute.binary_value
    value, other = (content, text) if field == _BINARY else (text, content)
    if other:
        raise invalid(
            f"The message (user) attribute '{name}' with type '{kind}' must use field '{field}'."
        )
    if not value:
        raise invalid(
            f"Message (user) attribute '{name}' must contain a non-empty value of type '{kind}'."
        )
    if text:
        if has_forbidden(text):
            raise invalid(FORBIDDEN_TEXT)
        if base == "Number" and not _is_number(text):
            raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def _is_number(text: str) -> bool:
    """Return whether text is a number of SQS: 38 digits, and from 10^-128 to 10^126, or 0."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        return False
    whole, part, power = match.groups()
    digits = (whole + part).lstrip("0")
    exponent = len(whole) - (len(whole + part) - len(digits)) + int(power or 0) - 1
    is_in_range = _NUMBER_EXPONENT_MIN <= exponent <= _NUMBER_EXPONENT_MAX
    return not digits or (is_in_range and len(digits.rstrip("0")) <= _NUMBER_DIGITS_MAX)
