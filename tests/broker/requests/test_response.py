"""Tests of responses: a request is answered exactly once."""

from typing import final

import pytest

from tests.wire.streams import FakeStream
from tidelog.broker.audit.event import NULL_AUDIT, RequestOrigin
from tidelog.broker.requests.identity import ANONYMOUS_IDENTITY, ClientIdentity
from tidelog.broker.requests.response import DelayedRequest, ReplyMeter, ResponseHandle
from tidelog.wire.errors import (
    ERROR_CLASSES,
    BrokerError,
    ErrorCode,
    OverloadedError,
)
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind
from tidelog.wire.protocol.node_proof import NodeVerifier
from tidelog.wire.security.principal import ANONYMOUS
from tidelog.wire.transport.write_buffer import WriteBuffer


@final
class FakeContext:
    """A connection with one request; see `broker.requests.response.RequestContext`."""

    local = ("broker", 8433)
    audit = NULL_AUDIT
    meter: ReplyMeter | None = None
    origin = RequestOrigin(ANONYMOUS)

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.write_buffer = WriteBuffer(self.stream)
        self.delayed: dict[DelayedRequest, None] = {}
        self.is_reserve = False
        self.node_id: int | None = None
        self.principal = ANONYMOUS
        self.identity = ANONYMOUS_IDENTITY
        self.is_encrypted = False
        self.peer = "client:1"
        self.ended_by = ""
        self.has_ended = False
        self.is_handling = False
        self.now = 0.0
        self.clock = lambda: self.now
        self.verifier: NodeVerifier | None = None
        self.answered_count = 0
        self.refusals: list[str] = []

    def answered(self) -> None:
        self.answered_count += 1
        self.write_buffer.flush()

    def note_refused(self, reason: str) -> None:
        self.refusals.append(reason)

    def authenticated(self, identity: ClientIdentity) -> None:
        self.identity = identity
        self.principal = identity.principal

    def give_up(self, reason: str) -> None:
        self.ended_by = reason


def new_response(context: FakeContext) -> ResponseHandle:
    request = Request(api.ApiKey.METADATA, 1, 7, MetadataRequest(None), memoryview(b""))
    return ResponseHandle(api.METADATA, request, context)  # type: ignore[arg-type]


def reply_in(context: FakeContext) -> object:
    """Return the one sent message."""
    decoder = FrameDecoder(max_frame_bytes=1 << 20)
    sent = bytes(context.stream.sent)
    decoder.get_buffer()[: len(sent)] = sent
    decoder.bytes_received(len(sent))
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.buffered_bytes == 0
    assert frame.correlation_id == 7
    if frame.kind is FrameKind.ERROR:
        return api.decode_error(frame.header)
    return api.METADATA.decode_reply(frame.header)


async def test_a_reply_is_sent_and_counted() -> None:
    context = FakeContext()

    new_response(context).reply(MetadataReply("c", [], []))

    assert reply_in(context) == MetadataReply("c", [], [])
    assert context.answered_count == 1


async def test_a_refusal_in_a_step_of_the_work_becomes_the_reply() -> None:
    context = FakeContext()
    with new_response(context):
        raise OverloadedError("too much")

    detail = reply_in(context)
    assert (getattr(detail, "code", 0), context.answered_count) == (ErrorCode.OVERLOADED, 1)


async def test_a_defect_in_a_step_of_the_work_is_logged_and_answered(
    defects: list[str],
) -> None:
    context = FakeContext()
    with new_response(context):
        raise KeyError("secret")

    detail = reply_in(context)
    assert getattr(detail, "code", 0) == ErrorCode.UNEXPECTED_SERVER_ERROR
    assert "secret" not in getattr(detail, "message", "")
    assert "secret" in defects.pop()
    assert context.answered_count == 1


async def test_a_defect_after_the_reply_is_only_logged(defects: list[str]) -> None:
    context = FakeContext()
    response = new_response(context)
    with response:
        response.reply(MetadataReply("c", [], []))
        raise KeyError("afterwards")

    assert reply_in(context) == MetadataReply("c", [], [])
    assert context.answered_count == 1
    assert "afterwards" in defects.pop()


async def test_a_second_reply_is_a_defect_and_is_not_sent(defects: list[str]) -> None:
    context = FakeContext()
    response = new_response(context)
    response.nothing()
    with response:
        response.reply(MetadataReply("c", [], []))
    with response:
        response.fail(OverloadedError("too much"))
    with response:
        response.nothing()

    assert context.stream.sent == b""
    assert context.answered_count == 1
    assert len(defects) == 3
    assert all("a request is answered once" in defect for defect in defects)
    defects.clear()


async def test_a_reply_that_cannot_be_encoded_is_answered_with_the_defect(
    defects: list[str],
) -> None:
    context = FakeContext()
    response = new_response(context)
    with response:
        response.reply(MetadataReply("c", [], [object()]), [b"attached"])  # type: ignore[list-item]

    assert getattr(reply_in(context), "code", 0) == ErrorCode.UNEXPECTED_SERVER_ERROR
    assert context.answered_count == 1
    assert "object" in defects.pop()


async def test_an_exception_that_is_no_error_passes_through() -> None:
    context = FakeContext()
    with pytest.raises(KeyboardInterrupt), new_response(context):
        raise KeyboardInterrupt

    assert context.answered_count == 0


async def test_a_reply_to_a_lost_client_is_dropped() -> None:
    context = FakeContext()
    context.write_buffer.close()

    new_response(context).reply(MetadataReply("c", [], []), [b"attached"])

    assert context.write_buffer.pending_bytes == 0
    assert context.answered_count == 1


async def test_every_refusal_can_be_encoded() -> None:
    for kind in ERROR_CLASSES.values():
        context = FakeContext()
        error: BrokerError = kind("why")
        new_response(context).fail(error)
        assert getattr(reply_in(context), "code", 0) == kind.code
