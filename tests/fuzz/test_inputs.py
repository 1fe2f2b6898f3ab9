"""Tests of hostile frames: they reach all APIs, and break a connection only where they say so."""

from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from tests.fuzz.inputs import HELLO, Inputs, Targets
from tests.wire.samples import EXCHANGES, Exchange
from tidelog.coordinator.raft.membership import Identity
from tidelog.wire.errors import WireFormatError
from tidelog.wire.protocol import api
from tidelog.wire.protocol.connection import Request, ServerConnection

COUNT = 6000
TARGETS = Targets(Identity(9, b"hostile"), [Identity(1, b"one"), Identity(2, b"two")])
SAMPLES: dict[int, Any] = {int(each.api.key): each.request for each in EXCHANGES}


def serve(server: ServerConnection, data: bytes) -> list[object]:
    """Return the requests and refusals in these bytes."""
    found: list[object] = []
    while data:
        space = server.decoder.get_buffer()
        length = min(len(space), len(data))
        space[:length], data = data[:length], data[length:]
        server.decoder.bytes_received(length)
        while (request := server.next_request()) is not None:
            found.append(request)
    return found


def introduced() -> ServerConnection:
    server = ServerConnection(api.APIS, max_frame_bytes=16 << 20)
    serve(server, HELLO)
    return server


def test_every_api_gets_hostile_requests_that_are_decoded() -> None:
    inputs, server = Inputs(Random(1), TARGETS), introduced()

    decoded: Counter[int] = Counter()
    for _ in range(COUNT):
        (request,) = serve(server, inputs.frame())
        if isinstance(request, Request):
            sample = SAMPLES[request.api_key]
            has_fields = bool(msgspec.structs.fields(sample))
            decoded[request.api_key] += not has_fields or request.message != sample

    assert {key for key, count in decoded.items() if count} == {each.key for each in api.APIS}
    assert decoded.total() > COUNT / 3


def test_a_connection_survives_every_hostile_frame() -> None:
    inputs, server = Inputs(Random(2), TARGETS), introduced()
    frames = [inputs.frame() for _ in range(COUNT)]

    assert len(serve(server, b"".join(frames))) == COUNT


def test_last_bytes_end_most_connections() -> None:
    inputs = Inputs(Random(3), TARGETS)

    ended = 0
    for _ in range(300):
        try:
            serve(introduced(), inputs.last_bytes() + HELLO)
        except WireFormatError:
            ended += 1

    assert 100 < ended < 300, "some wait for more bytes, and some are frames by chance"


def test_the_same_seed_gives_the_same_frames() -> None:
    def frames() -> list[bytes]:
        inputs = Inputs(Random(4), TARGETS)
        return [inputs.frame() for _ in range(100)]

    assert frames() == frames()


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda each: each.name)
def test_every_api_gets_hostile_replies(exchange: Exchange) -> None:
    inputs = Inputs(Random(5), TARGETS)

    replies = {inputs.reply_to(exchange.api.key, 1, 7) for _ in range(100)}

    assert len(replies) > 1
