"""Tests of answering a request exactly once, whatever happens."""

from typing import final

import pytest

from tests.wire.streams import FakeStream
from tidelog.broker.requests.response import Parked, Replier
from tidelog.wire.error_code import ErrorCode
from tidelog.wire.errors import (
    ERROR_CLASSES,
    BrokerError,
    OverloadedError,
)
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind
from tidelog.wire.protocol.write_buffer import WriteBuffer


@final
class FakeAsking:
    """A connection on which one request came; see `broker.requests.response.Asking`."""

    local = ("broker", 8433)

    def __init__(self) -> None:
        self.stream = FakeStream()
        self.write_buffer = WriteBuffer(self.stream)
        self.parked: dict[Parked, None] = {}
        self.is_reserve = self.is_of_node = False
        self.answered_count = 0

    def answered(self) -> None:
        self.answered_count += 1
        self.write_buffer.flush()


def new_replier(asking: FakeAsking) -> Replier:
    request = Request(api.ApiKey.METADATA, 1, 7, MetadataRequest(None), memoryview(b""))
    return Replier(api.METADATA, request, asking)  # type: ignore[arg-type]


def reply_in(asking: FakeAsking) -> object:
    """Return the one message that was sent."""
    decoder = FrameDecoder(max_frame_bytes=1 << 20)
    sent = bytes(asking.stream.sent)
    decoder.get_buffer()[: len(sent)] = sent
    decoder.bytes_received(len(sent))
    frame = decoder.next_frame()
    assert frame is not None
    assert decoder.buffered_bytes == 0
    assert frame.correlation_id == 7
    if frame.kind is FrameKind.ERROR:
        return api.decode_error(frame.header)
    return api.METADATA.decode_reply(frame.header)


def test_a_reply_is_sent_and_counted() -> None:
    asking = FakeAsking()

    new_replier(asking).reply(MetadataReply("c", [], []))

    assert reply_in(asking) == MetadataReply("c", [], [])
    assert asking.answered_count == 1


def test_a_refusal_in_a_step_of_the_work_becomes_the_answer() -> None:
    asking = FakeAsking()
    with new_replier(asking):
        raise OverloadedError("too much")

    detail = reply_in(asking)
    assert (getattr(detail, "code", 0), asking.answered_count) == (ErrorCode.OVERLOADED, 1)


def test_a_defect_in_a_step_of_the_work_is_logged_and_answered(
    defects: list[str],
) -> None:
    asking = FakeAsking()
    with new_replier(asking):
        raise KeyError("secret")

    detail = reply_in(asking)
    assert getattr(detail, "code", 0) == ErrorCode.UNEXPECTED_SERVER_ERROR
    assert "secret" not in getattr(detail, "message", "")
    assert "secret" in defects.pop()
    assert asking.answered_count == 1


def test_a_defect_after_the_answer_is_only_logged(defects: list[str]) -> None:
    asking = FakeAsking()
    replier = new_replier(asking)
    with replier:
        replier.reply(MetadataReply("c", [], []))
        raise KeyError("afterwards")

    assert reply_in(asking) == MetadataReply("c", [], [])
    assert asking.answered_count == 1
    assert "afterwards" in defects.pop()


def test_a_second_answer_is_a_defect_and_is_not_sent(defects: list[str]) -> None:
    asking = FakeAsking()
    replier = new_replier(asking)
    replier.nothing()
    with replier:
        replier.reply(MetadataReply("c", [], []))
    with replier:
        replier.fail(OverloadedError("too much"))
    with replier:
        replier.nothing()

    assert asking.stream.sent == b""
    assert asking.answered_count == 1
    assert len(defects) == 3
    assert all("a request is answered once" in defect for defect in defects)
    defects.clear()


def test_a_message_that_cannot_be_sent_is_answered_with_the_defect(defects: list[str]) -> None:
    asking = FakeAsking()
    replier = new_replier(asking)
    with replier:
        replier.reply(MetadataReply("c", [], [object()]), [b"attached"])  # type: ignore[list-item]

    assert getattr(reply_in(asking), "code", 0) == ErrorCode.UNEXPECTED_SERVER_ERROR
    assert asking.answered_count == 1
    assert "object" in defects.pop()


def test_what_is_not_an_exception_is_not_held_up() -> None:
    asking = FakeAsking()
    with pytest.raises(KeyboardInterrupt), new_replier(asking):
        raise KeyboardInterrupt

    assert asking.answered_count == 0


def test_an_answer_to_a_client_that_is_gone_goes_nowhere() -> None:
    asking = FakeAsking()
    asking.write_buffer.close()

    new_replier(asking).reply(MetadataReply("c", [], []), [b"attached"])

    assert asking.write_buffer.pending_bytes == 0
    assert asking.answered_count == 1


def test_every_refusal_can_be_sent() -> None:
    for kind in ERROR_CLASSES.values():
        asking = FakeAsking()
        error: BrokerError = kind("why")
        new_replier(asking).fail(error)
        assert getattr(reply_in(asking), "code", 0) == kind.code
