"""Messages as records: how bodies, attributes and ids of SQS are kept in a topic, and read again.

Pure: no clock, no I/O. The body is the value in UTF-8, `MessageGroupId` is the key. A message
attribute is a header of its name, with its bytes as value, so streams and Spark read it, and a
header of a native producer is an attribute here. Types other than `String` are in one header
besides. What only SQS knows has the prefix `sqs.`.
"""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import msgspec

from tidelog.gateway.sqs.protocol.requests import MessageAttribute, MessageAttributes
from tidelog.wire.batch.message_id import message_id_in, record_id
from tidelog.wire.batch.record_batch import Headers

PREFIX: Final = "sqs."
SENDER_HEADER: Final = "sqs.sender"
"""Header with the `SenderId`."""
TRACE_HEADER: Final = "sqs.trace"
"""Header with the `AWSTraceHeader`."""
TYPES_HEADER: Final = "sqs.types"
"""Header with the types of attributes that are not `String`: JSON, a type by name."""
ATTRIBUTE_PREFIX: Final = "sqs.attribute."
"""Prefix of attributes whose names are reserved for headers of tidelog or of this module."""
APPENDED_HEADER: Final = "sqs.appended"
"""Header of a message whose attributes are too long for headers: their bytes are behind the body in
the value. JSON: the length of the body, and name and length of each attribute in their order."""
ENCODING_ATTRIBUTE: Final = "tidelog.encoding"
"""Attribute of a message whose value is not text: `base64`, as its body is."""

_RESERVED: Final = (PREFIX, "tidelog")
_NAME: Final = re.compile(r"[\w.-]{1,256}")
_FORBIDDEN: Final = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_CONTROLS: Final = bytes(each for each in range(0x20) if each not in b"\t\n\r")
_STRING, _BINARY = "String", "Binary"
_SEQUENCE_BASE: Final = 10**19
"""Makes sequence numbers of 20 digits, whose order as text is that of the numbers."""

_HEADERS_BYTES_MAX: Final = 64 << 10
"""Bytes of attributes beyond which they are behind the body: brokers limit records, and only values
can be sent in chunks."""

_Types = dict[str, str]
_Appended = tuple[int, list[tuple[str, int]]]


def has_forbidden(text: str) -> bool:
    """Return whether text has characters that messages of SQS may not have (XML 1.0, `Char`)."""
    if text.isascii():  # A third of the time that a search takes.
        value = text.encode()
        return len(value.translate(None, _CONTROLS)) != len(value)
    return _FORBIDDEN.search(text) is not None


class MessageParts(NamedTuple):
    """Value and headers of a record, or of a message that was taken from a record."""

    value: bytes
    headers: Headers


def record_of_message(
    body: bytes, attributes: MessageAttributes | None, *, sender: Headers, trace: str | None
) -> MessageParts:
    """Return value and headers of the record of a message.

    Args:
        body: Body in UTF-8.
        attributes: Message attributes that were checked.
        sender: The header of `SenderId`; none to leave it out. A message that has no other headers
            gets this very object, by which clients recognise messages of one kind.
        trace: `AWSTraceHeader`.
    """
    if not attributes and trace is None:
        return MessageParts(body, sender)
    headers: list[tuple[str, bytes]] = []
    value = body
    if attributes:
        contents: list[tuple[str, bytes]] = []
        types: _Types = {}
        for name, attribute in attributes.items():
            text = attribute.string_value
            content = (attribute.binary_value or b"") if text is None else text.encode()
            contents.append((name, content))
            if attribute.data_type is not None and attribute.data_type != _STRING:
                types[name] = attribute.data_type
        if sum(len(content) for _, content in contents) > _HEADERS_BYTES_MAX:
            lengths = [(name, len(content)) for name, content in contents]
            headers.append((APPENDED_HEADER, msgspec.json.encode((len(body), lengths))))
            value = b"".join((body, *(content for _, content in contents)))
        else:
            headers += [(_header_of(name), content) for name, content in contents]
        if types:
            headers.append((TYPES_HEADER, msgspec.json.encode(types)))
    headers += sender
    if trace is not None:
        headers.append((TRACE_HEADER, trace.encode()))
    return MessageParts(value, tuple(headers))


def _header_of(name: str) -> str:
    return ATTRIBUTE_PREFIX + name if name.startswith(_RESERVED) else name


def message_of_record(value: bytes, headers: Headers) -> MessageParts:
    """Return the body of a message, and headers that have all of its attributes."""
    for header, described in headers:
        if header == APPENDED_HEADER:
            try:
                at, lengths = msgspec.json.decode(described, type=_Appended)
            except (msgspec.DecodeError, UnicodeDecodeError):
                continue  # Set by another program.
            if at + sum(length for _, length in lengths) != len(value) or at < 0:
                continue
            body, found = value[:at], list(headers)
            for name, length in lengths:
                found.append((_header_of(name), value[at : at + length]))
                at += length
            return MessageParts(body, tuple(found))
    return MessageParts(value, headers)


def attributes_in(headers: Headers) -> MessageAttributes:
    """Return the message attributes in the headers of a record.

    A header of a native producer is a `String` if its value is text that SQS allows, and `Binary`
    otherwise. Headers with names or values that no attribute may have are left out.
    """
    found: dict[str, bytes] = {}
    types: Mapping[str, str] = {}
    for header, value in headers:
        name = header
        if header.startswith(_RESERVED):
            if header == TYPES_HEADER:
                types = _types_in(value)
            if not header.startswith(ATTRIBUTE_PREFIX):
                continue
            name = header.removeprefix(ATTRIBUTE_PREFIX)
        if value and _NAME.fullmatch(name):
            found[name] = value
    return {name: _attribute(types.get(name, _STRING), value) for name, value in found.items()}


def _types_in(value: bytes) -> _Types:
    try:
        return msgspec.json.decode(value, type=_Types)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}  # Set by another program.


def _attribute(kind: str, value: bytes) -> MessageAttribute:
    if not kind.startswith(_BINARY):
        text = text_of(value)
        if text is not None:
            return MessageAttribute(kind, string_value=text)
        kind = _BINARY
    return MessageAttribute(kind, binary_value=value)


def text_of(value: bytes) -> str | None:
    """Return a value as text, `None` if it is none that SQS allows."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return None
    return None if has_forbidden(text) else text


def body_of(value: bytes) -> tuple[str, bool]:
    """Return the body of a message, and whether that is Base64, since the value is not text."""
    text = text_of(value)
    return (b64encode(value).decode(), True) if text is None else (text, False)


def header_in(headers: Headers, name: str) -> str | None:
    """Return the text of a header, `None` without it; of several with one name the last."""
    found: bytes | None = None
    for header, value in headers:
        if header == name:
            found = value
    return None if found is None else found.decode("utf-8", "replace")


def message_id_of(topic_id: bytes, partition: int, offset: int) -> str:
    """Return the `MessageId` of a record: a UUID that follows from its place, in any process."""
    return _uuid(record_id(topic_id, partition, offset))


def moved_message_id(headers: Iterable[tuple[str, bytes]]) -> str | None:
    """Return the `MessageId` of a dead letter: that of the record of its send."""
    first = message_id_in(headers)
    return None if first is None else _uuid(first)


def _uuid(identity: str) -> str:
    digits = hashlib.md5(identity.encode(), usedforsecurity=False).hexdigest()
    # The form of version 4, since programs may check that.
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-8{digits[17:20]}-{digits[20:]}"


def sequence_number_of(offset: int) -> str:
    """Return the `SequenceNumber` of a message of a FIFO queue: it grows within each group."""
    return str(_SEQUENCE_BASE + offset)
