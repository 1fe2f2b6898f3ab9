"""Trace headers of HTTP requests, which become the attribute `AWSTraceHeader` of messages.

Pure: no clock, no I/O. Source: "Amazon SQS and AWS X-Ray" of the Developer Guide: a sender passes
the header `X-Amzn-Trace-Id`, or the message system attribute.
"""

from typing import Final

from msgspec.structs import replace

from tidelog.gateway.sqs.message_checks import TRACE_ATTRIBUTE
from tidelog.gateway.sqs.protocol.requests import (
    MessageAttribute,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
    SqsCall,
)

TRACE_HEADER: Final = b"x-amzn-trace-id"


def traced(call: SqsCall, header: bytes) -> SqsCall:
    """Return a request whose messages have a trace header, unless they have one of their own.

    Args:
        call: A request, perhaps one that sends.
        header: Value of the header `X-Amzn-Trace-Id`.
    """
    try:
        text = header.decode("ascii").strip()
    except UnicodeDecodeError:
        return call
    if not text or not text.isprintable():
        return call
    given = {TRACE_ATTRIBUTE: MessageAttribute(data_type="String", string_value=text)}
    if isinstance(call, SendMessageCall):
        attributes = given | (call.message_system_attributes or {})
        return replace(call, message_system_attributes=attributes)
    if isinstance(call, SendMessageBatchCall) and call.entries:
        return replace(call, entries=[_with(entry, given) for entry in call.entries])
    return call


def _with(entry: SendEntry, given: dict[str, MessageAttribute]) -> SendEntry:
    attributes = given | (entry.message_system_attributes or {})
    return replace(entry, message_system_attributes=attributes)
