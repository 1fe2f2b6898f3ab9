"""The two ends of a connection: legal messages, and the effects of illegal ones."""

import doctest

import pytest

from tests.wire.samples import EXCHANGES
from tidelog.wire.errors import (
    ErrorCode,
    ErrorDetail,
    InvalidRequestError,
    OffsetOutOfRangeError,
    UnexpectedServerError,
    UnsupportedVersionError,
    WireFormatError,
)
from tidelog.wire.messages.fetch import FetchReply, FetchRequest
from tidelog.wire.messages.handshake import ApiVersions, HelloReply, HelloRequest
from tidelog.wire.messages.metadata import MetadataReply, MetadataRequest
from tidelog.wire.protocol import api, connection
from tidelog.wire.protocol.api import ApiKey
from tidelog.wire.protocol.connection import (
    ClientConnection,
    RefusedRequest,
    Reply,
    Request,
    ServerConnection,
)
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind, encode_frame

FRAME_BYTES_MAX = 1 << 20
APIS = [exchange.api for exchange in EXCHANGES]
OFFERED = [ApiVersions(served.key, served.min_version, served.max_version) for served in APIS]
HELLO = api.HELLO.encode_request(HelloRequest("test", "1"), version=1, correlation_id=1)
METADATA = api.METADATA.encode_request(MetadataRequest(["orders"]), version=1, correlation_id=2)


def receive(decoder: FrameDecoder, data: bytes) -> None:
    decoder.get_buffer()[: len(data)] = data
    decoder.bytes_received(len(data))


def new_server() -> ServerConnection:
    return ServerConnection(APIS, max_frame_bytes=FRAME_BYTES_MAX)


def introduced_server() -> ServerConnection:
    server = new_server()
    receive(server.decoder, HELLO)
    assert isinstance(server.next_request(), Request)
    return server


def new_client() -> ClientConnection:
    client = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)
    client.set_offered(OFFERED)
    return client


def frame(
    kind: FrameKind = FrameKind.REQUEST,
    *,
    api_key: int = ApiKey.METADATA,
    api_version: int = 1,
    correlation_id: int = 9,
    header: bytes = b"\x91\xc0",
) -> bytes:
    return encode_frame(
        kind,
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        header=header,
    )


def refusal(refused: object) -> ErrorDetail:
    """Return the error in a refused request's reply, having checked its frame."""
    assert isinstance(refused, RefusedRequest)
    decoder = FrameDecoder(max_frame_bytes=FRAME_BYTES_MAX)
    receive(decoder, refused.reply)
    reply = decoder.next_frame()
    assert reply is not None
    assert (reply.kind, reply.correlation_id) == (FrameKind.ERROR, 9)
    detail = api.decode_error(reply.header)
    assert detail == refused.error.to_wire()
    return detail


# The broker's end


def test_a_server_hands_out_requests_in_order() -> None:
    server = new_server()

    receive(server.decoder, HELLO + METADATA)
    hello, metadata = server.next_request(), server.next_request()

    assert isinstance(hello, Request)
    assert isinstance(metadata, Request)
    assert (hello.api_key, hello.version, hello.correlation_id) == (ApiKey.HELLO, 1, 1)
    assert hello.message == HelloRequest("test", "1")
    assert (metadata.api_key, metadata.correlation_id) == (ApiKey.METADATA, 2)
    assert metadata.message == MetadataRequest(["orders"])
    assert server.next_request() is None


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: exchange.name)
def test_a_server_takes_every_request_with_its_attachment(exchange: object) -> None:
    assert isinstance(exchange, type(EXCHANGES[0]))
    server = introduced_server()
    data = exchange.api.encode_request(
        exchange.request, version=1, correlation_id=3, attachment_length=5
    )

    receive(server.decoder, data + b"bytes")
    request = server.next_request()

    assert isinstance(request, Request)
    assert (request.message, bytes(request.attachment)) == (exchange.request, b"bytes")


def test_the_first_request_must_be_a_hello() -> None:
    server = new_server()

    receive(server.decoder, METADATA)

    with pytest.raises(WireFormatError, match="the first request on a connection must be a hello"):
        server.next_request()


def test_a_refused_hello_does_not_count_as_a_hello() -> None:
    for bad_hello in (
        frame(api_key=ApiKey.HELLO, header=b"\x91\x01"),
        frame(api_key=ApiKey.HELLO, api_version=2, header=b"\x92\xa1a\xa1a"),
    ):
        server = new_server()
        receive(server.decoder, bad_hello + METADATA)

        assert isinstance(server.next_request(), RefusedRequest)
        with pytest.raises(WireFormatError, match="must be a hello"):
            server.next_request()


@pytest.mark.parametrize("kind", [FrameKind.REPLY, FrameKind.ERROR])
def test_a_client_may_only_send_requests(kind: FrameKind) -> None:
    server = new_server()

    receive(server.decoder, frame(kind))

    with pytest.raises(WireFormatError, match=f"a client sent a {kind.name.lower()} frame"):
        server.next_request()


def test_an_unknown_api_is_refused_and_the_connection_stays_open() -> None:
    server = introduced_server()

    receive(server.decoder, frame(api_key=999) + METADATA)
    detail = refusal(server.next_request())

    assert detail.code == ErrorCode.UNSUPPORTED_VERSION
    known = ", ".join(str(key) for key in sorted(int(key) for key in ApiKey))
    assert detail.message == (f"API 999 is unknown; the broker has {known}")
    assert isinstance(server.next_request(), Request)


@pytest.mark.parametrize("version", [0, 5, 0xFFFF])
def test_an_unknown_version_is_refused_with_the_known_ones(version: int) -> None:
    server = introduced_server()

    receive(server.decoder, frame(api_version=version) + METADATA)
    detail = refusal(server.next_request())

    assert detail.code == ErrorCode.UNSUPPORTED_VERSION
    assert detail.details == {"min_version": 1, "max_version": 4}
    assert detail.message == (
        f"version {version} of METADATA is not supported; this broker supports versions 1 to 4"
    )
    assert isinstance(server.next_request(), Request)


@pytest.mark.parametrize(
    "header",
    [b"", b"\x90", b"\x91\x01", b"\xc1", b"\x91\x91\xa1\xff", b"\x92\xc0" + b"\x91" * 100_000],
    ids=["nothing", "no field", "wrong type", "no msgpack", "no UTF-8", "nested"],
)
def test_a_malformed_message_is_refused_and_the_connection_stays_open(
    header: bytes,
) -> None:
    server = ServerConnection(APIS, max_frame_bytes=FRAME_BYTES_MAX)
    receive(server.decoder, HELLO)
    server.next_request()
    data = memoryview(frame(header=header) + METADATA)
    answers: list[object] = []

    while data:
        space = server.decoder.get_buffer()
        count = min(len(space), len(data))
        space[:count] = data[:count]
        data = data[count:]
        server.decoder.bytes_received(count)
        while (request := server.next_request()) is not None:
            answers.append(request)

    refused, metadata = answers
    detail = refusal(refused)
    assert detail.code == ErrorCode.INVALID_REQUEST
    assert detail.message.startswith("METADATA: a message cannot be decoded: ")
    assert isinstance(refused, RefusedRequest)
    assert isinstance(refused.error, InvalidRequestError)
    assert isinstance(metadata, Request)


def test_a_server_serves_only_the_apis_that_it_was_given() -> None:
    server = ServerConnection(APIS[:1], max_frame_bytes=FRAME_BYTES_MAX)

    receive(server.decoder, HELLO + frame())
    server.next_request()

    assert refusal(server.next_request()).message == "API 1 is unknown; the broker has 0"


# The client's end


HELLO_REPLY = HelloReply("0.1.0", "cluster", 1, OFFERED, FRAME_BYTES_MAX, 64)


def test_replies_may_come_in_any_order() -> None:
    client = new_client()
    first, _ = client.send_request(api.FETCH, FetchRequest(500, 1, 1000, []))
    second, _ = client.send_request(api.METADATA, MetadataRequest(None))
    metadata = MetadataReply("cluster", [], [])

    receive(
        client.decoder,
        api.METADATA.encode_reply(metadata, version=1, correlation_id=second)
        + api.FETCH.encode_reply(
            FetchReply([]), version=1, correlation_id=first, attachment_length=7
        )
        + b"batches",
    )
    replies = [client.next_reply(), client.next_reply()]

    assert [
        (reply.correlation_id, reply.message, bytes(reply.attachment))
        for reply in replies
        if isinstance(reply, Reply)
    ] == [(second, metadata, b""), (first, FetchReply([]), b"batches")]
    assert client.next_reply() is None
    assert client.in_flight_count == 0


def test_requests_of_a_connection_are_numbered_from_0_on() -> None:
    client = new_client()

    numbers = [client.send_request(api.METADATA, MetadataRequest(None))[0] for _ in range(4)]

    assert numbers == [0, 1, 2, 3]
    assert client.in_flight_count == 4


def test_the_hello_goes_out_in_version_1_before_anything_is_known() -> None:
    client = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)

    correlation_id, data = client.send_request(api.HELLO, HelloRequest("test", "1"))

    server = new_server()
    receive(server.decoder, data)
    request = server.next_request()
    assert isinstance(request, Request)
    assert (request.version, request.correlation_id) == (1, correlation_id)


def test_another_offer_chooses_other_versions() -> None:
    client = new_client()
    before = client.version_of(api.METADATA)

    client.set_offered([ApiVersions(ApiKey.METADATA, 1, 1)])

    assert (before, client.version_of(api.METADATA)) == (api.METADATA.max_version, 1)


def test_an_api_that_was_not_offered_cannot_be_requested() -> None:
    client = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)

    with pytest.raises(UnsupportedVersionError, match="the broker does not offer METADATA"):
        client.send_request(api.METADATA, MetadataRequest(None))
    assert client.in_flight_count == 0


def test_an_error_reply_becomes_the_exception() -> None:
    client = new_client()
    correlation_id, _ = client.send_request(api.METADATA, MetadataRequest(None))
    error = OffsetOutOfRangeError("no", log_start_offset=1, log_end_offset=2)

    receive(
        client.decoder,
        api.encode_error(error.to_wire(), api_key=1, api_version=1, correlation_id=correlation_id),
    )
    reply = client.next_reply()

    assert reply is not None
    assert isinstance(reply.message, OffsetOutOfRangeError)
    assert reply.message.log_end_offset == 2


def test_an_error_of_a_newer_broker_is_an_unexpected_server_error() -> None:
    client = new_client()
    correlation_id, _ = client.send_request(api.METADATA, MetadataRequest(None))

    receive(
        client.decoder,
        frame(FrameKind.ERROR, correlation_id=correlation_id, header=b"\x92\xcd\x03\xe7\xa1m"),
    )
    reply = client.next_reply()

    assert reply is not None
    assert isinstance(reply.message, UnexpectedServerError)


def test_a_reply_to_a_request_that_is_not_open_ends_the_connection() -> None:
    client = new_client()
    correlation_id, _ = client.send_request(api.METADATA, MetadataRequest(None))
    good = api.METADATA.encode_reply(
        MetadataReply("c", [], []), version=1, correlation_id=correlation_id
    )

    receive(client.decoder, good + good)

    assert client.next_reply() is not None
    client.send_request(api.FETCH, FetchRequest(0, 1, 1, []))
    client.send_request(api.METADATA, MetadataRequest(None))
    with pytest.raises(WireFormatError, match=r"a reply to request 0, which is not open"):
        client.next_reply()
    assert client.suspects == [ApiKey.METADATA, ApiKey.FETCH]


def test_a_request_that_expects_no_reply_is_not_open() -> None:
    client = new_client()

    correlation_id, _ = client.send_request(
        api.METADATA, MetadataRequest(None), expects_reply=False
    )

    assert client.in_flight_count == 0
    receive(client.decoder, frame(FrameKind.REPLY, correlation_id=correlation_id))
    with pytest.raises(WireFormatError, match="which is not open"):
        client.next_reply()


def test_a_refusal_of_a_request_that_expects_no_reply_is_left_alone() -> None:
    client = new_client()
    silent, _ = client.send_request(api.METADATA, MetadataRequest(None), expects_reply=False)
    asked, _ = client.send_request(api.METADATA, MetadataRequest(None))
    refusal_of_silent = frame(FrameKind.ERROR, correlation_id=silent, header=b"\x92\x15\xa1m")

    receive(client.decoder, refusal_of_silent)
    assert client.next_reply() is None
    receive(
        client.decoder,
        refusal_of_silent
        + api.METADATA.encode_reply(MetadataReply("c", [], []), version=1, correlation_id=asked),
    )
    reply = client.next_reply()

    assert reply is not None
    assert reply.correlation_id == asked


def test_a_broker_may_not_send_requests() -> None:
    client = new_client()
    correlation_id, _ = client.send_request(api.METADATA, MetadataRequest(None))

    receive(client.decoder, frame(correlation_id=correlation_id))

    with pytest.raises(WireFormatError):
        client.next_reply()


@pytest.mark.parametrize("kind", [FrameKind.REPLY, FrameKind.ERROR])
@pytest.mark.parametrize("api_key", [ApiKey.HELLO, ApiKey.FETCH])
def test_a_reply_of_another_api_than_asked_ends_the_connection(
    kind: FrameKind, api_key: ApiKey
) -> None:
    client = new_client()
    correlation_id, _ = client.send_request(api.METADATA, MetadataRequest(None))

    receive(client.decoder, frame(kind, api_key=api_key, correlation_id=correlation_id))

    with pytest.raises(
        WireFormatError, match=f"request 0 was METADATA, its reply is of API {api_key}"
    ):
        client.next_reply()
    assert client.suspects == [ApiKey.METADATA]


@pytest.mark.parametrize("kind", [FrameKind.REPLY, FrameKind.ERROR])
def test_a_malformed_reply_ends_the_connection(kind: FrameKind) -> None:
    client = new_client()
    correlation_id, _ = client.send_request(api.METADATA, MetadataRequest(None))

    receive(client.decoder, frame(kind, correlation_id=correlation_id, header=b"\x91\xa1\xff"))

    client.send_request(api.FETCH, FetchRequest(0, 1, 1, []))
    with pytest.raises(WireFormatError, match="a message cannot be decoded"):
        client.next_reply()
    assert client.suspects == [ApiKey.METADATA]


def test_correlation_ids_count_up() -> None:
    client = new_client()

    ids = [client.send_request(api.METADATA, MetadataRequest(None))[0] for _ in range(5)]

    assert ids == [0, 1, 2, 3, 4]
    assert client.in_flight_count == 5


def test_a_conversation_survives_both_ends() -> None:
    client, server = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX), new_server()
    _, data = client.send_request(api.HELLO, HelloRequest("test", "1"))
    receive(server.decoder, data)
    hello = server.next_request()
    assert isinstance(hello, Request)

    receive(
        client.decoder,
        api.HELLO.encode_reply(HELLO_REPLY, version=1, correlation_id=hello.correlation_id),
    )
    reply = client.next_reply()

    assert reply is not None
    assert reply.message == HELLO_REPLY


def test_the_example_of_the_module_runs() -> None:
    results = doctest.testmod(connection)

    assert (results.failed, results.attempted) == (0, 12)
