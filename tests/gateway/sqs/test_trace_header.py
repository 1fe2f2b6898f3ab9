"""The trace header of a request is that of its messages."""

import pytest

from tidelog.gateway.sqs.protocol.requests import (
    MessageAttribute,
    ReceiveMessageCall,
    SendEntry,
    SendMessageBatchCall,
    SendMessageCall,
)
from tidelog.gateway.sqs.trace_header import traced

TRACE = b"Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
OWN = {"AWSTraceHeader": MessageAttribute(data_type="String", string_value="Root=1-own")}
GIVEN = {"AWSTraceHeader": MessageAttribute(data_type="String", string_value=TRACE.decode())}


def test_a_message_gets_the_header() -> None:
    call = traced(SendMessageCall(message_body="a"), TRACE)
    assert call == SendMessageCall(message_body="a", message_system_attributes=GIVEN)


def test_entries_get_the_header_unless_they_have_one() -> None:
    batch = SendMessageBatchCall(
        entries=[SendEntry(id="a"), SendEntry(id="b", message_system_attributes=OWN)]
    )
    assert traced(batch, TRACE) == SendMessageBatchCall(
        entries=[
            SendEntry(id="a", message_system_attributes=GIVEN),
            SendEntry(id="b", message_system_attributes=OWN),
        ]
    )


@pytest.mark.parametrize("header", [b"", b" ", b"\xff", b"a\x01b"])
def test_a_header_that_is_no_text_is_ignored(header: bytes) -> None:
    call = SendMessageCall(message_body="a")
    assert traced(call, header) is call


def test_other_requests_stay_as_they_are() -> None:
    call = ReceiveMessageCall()
    assert traced(call, TRACE) is call
