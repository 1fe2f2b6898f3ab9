"""Sans-I/O state machines of both ends of a connection: bytes in, requests and replies out.

Pure: no clock, no I/O. `ServerConnection` turns received bytes into requests,
`ClientConnection` turns them into replies. The caller carries the bytes, over a
socket or otherwise:

>>> from tidelog.wire.messages.handshake import HelloReply, HelloRequest
>>> def carry(frame: bytes, to: FrameDecoder) -> None:
...     to.get_buffer()[: len(frame)] = frame
...     to.bytes_received(len(frame))
>>> client = ClientConnection(max_frame_bytes=4096)
>>> server = ServerConnection([api.HELLO], max_frame_bytes=4096)
>>> number, frame = client.send_request(api.HELLO, HelloRequest("example", "1.0"))
>>> carry(frame[:30], server.decoder)
>>> server.next_request()  # None: more bytes are needed.
>>> carry(frame[30:], server.decoder)
>>> server.next_request().message
HelloRequest(client_id='example', client_version='1.0')
>>> reply = HelloReply("1.0", "a cluster", 1, [], 4096, 5)
>>> carry(api.HELLO.encode_reply(reply, version=1, correlation_id=number), client.decoder)
>>> client.next_reply().message.cluster_id
'a cluster'
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, final

import msgspec

from tidelog.wire.errors import (
    BrokerError,
    InvalidRequestError,
    UnsupportedVersionError,
    WireFormatError,
    from_wire,
)
from tidelog.wire.messages.handshake import ApiVersions, HelloRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api, ApiKey
from tidelog.wire.protocol.frame import Frame, FrameDecoder, FrameKind

HELLO_BYTES_MAX = 8 << 10
"""Maximum bytes of a frame before the hello, the hello included: it fits into the first buffer."""

UNPROVEN_BYTES_MAX = 64 << 10
"""Maximum bytes of a frame after the hello, while a peer must prove its identity first."""

CLIENT_ID_CHARS_MAX = 128
"""Maximum characters of a client id that are kept."""

HELLOS_MAX = 8
"""Maximum requests until a hello is valid; then the connection ends."""

_RequestType = TypeVar("_RequestType")
_ReplyType = TypeVar("_ReplyType")


class Request(msgspec.Struct, frozen=True, gc=False):
    """A received request. The attachment is valid until the next `get_buffer`."""

    api_key: int
    version: int
    correlation_id: int
    message: object
    attachment: memoryview


class RefusedRequest(msgspec.Struct, frozen=True, gc=False):
    """A refused request with its encoded error reply; the connection stays open."""

    reply: bytes
    error: BrokerError

    @classmethod
    def of(cls, request: Request, error: BrokerError) -> "RefusedRequest":
        """Return the refusal of a request."""
        reply = api.encode_error(
            error.to_wire(),
            api_key=request.api_key,
            api_version=request.version,
            correlation_id=request.correlation_id,
        )
        return cls(reply, error)


@final
class ServerConnection:
    """The broker's end: received bytes in, requests out.

    The first request must be a hello. This rejects peers whose bytes look like a frame by accident.
    """

    def __init__(
        self,
        apis: Sequence[api.AnyApi] | Mapping[int, api.AnyApi],
        *,
        max_frame_bytes: int,
        is_of_node: Callable[[], bool] = lambda: False,
        is_admitted: Callable[[], bool] = lambda: True,
    ) -> None:
        """Serve `apis`; longer frames than `max_frame_bytes` end the connection.

        A mapping by key is used as it is, so that thousands of connections share one.

        Before the hello, frames above `HELLO_BYTES_MAX` do. A request with a header above the limit
        of its API is refused, unless `is_of_node` returns that a node is at the other end. Frames
        above `UNPROVEN_BYTES_MAX` end the connection until `is_admitted` returns that the peer has
        proved its identity, or need not.
        """
        self._is_admitted = is_admitted
        self.is_unproven = True
        """Whether the peer has sent no hello, or must prove its identity and has not."""
        self._is_of_node = is_of_node
        self.decoder = FrameDecoder(max_frame_bytes=min(max_frame_bytes, HELLO_BYTES_MAX))
        self._max_frame_bytes = max_frame_bytes
        if not isinstance(apis, Mapping):
            apis = {int(served.key): served for served in apis}
        self._apis: Mapping[int, api.AnyApi] = apis
        self._is_introduced = False
        self.client_id = ""
        """Start of the name of the program at the other end, as its hello gave it."""
        self._hello_count = 0

    @property
    def is_introduced(self) -> bool:
        """Whether the peer has sent its hello."""
        return self._is_introduced

    def next_request(self) -> Request | RefusedRequest | None:
        """Return the next request, `None` when more bytes are needed.

        Raises:
            WireFormatError: The bytes are not this protocol; close the connection.
        """
        if self.is_unproven:
            self._check_proof()
        frame = self.decoder.next_frame()
        if frame is None:
            return None
        self._hello_count += not self._is_introduced
        if frame.kind is not FrameKind.REQUEST:
            raise WireFormatError(f"a client sent a {frame.kind.name.lower()} frame")
        if not self._is_introduced and frame.api_key != ApiKey.HELLO:
            raise WireFormatError("the first request on a connection must be a hello")
        served = self._apis.get(frame.api_key)
        if served is None:
            known = ", ".join(str(key) for key in sorted(self._apis))
            return _refuse(
                frame,
                UnsupportedVersionError(f"API {frame.api_key} is unknown; the broker has {known}"),
            )
        if not served.min_version <= frame.api_version <= served.max_version:
            return _refuse(frame, _unsupported_version(served, frame.api_version))
        if len(frame.header) > served.header_bytes_max and not self._is_of_node():
            return _refuse(frame, _too_long(served, len(frame.header)))
        try:
            message = served.request_decoder.decode(frame.header)
        except api.UNDECODABLE as error:
            reason = f"{served.key.name}: {api.not_decodable(error)}"
            return _refuse(frame, InvalidRequestError(reason))
        if not self._is_introduced:
            self._introduce(message)
        return Request(
            frame.api_key, frame.api_version, frame.correlation_id, message, frame.attachment
        )

    def _check_proof(self) -> None:
        """Allow long frames if the peer is admitted.

        Raises:
            WireFormatError: The peer has sent many requests, and no hello.
        """
        if not self._is_introduced:
            if self._hello_count >= HELLOS_MAX:
                raise WireFormatError(f"no valid hello among {HELLOS_MAX} requests")
        elif self._is_admitted():
            self.is_unproven = False
            self.decoder.limit(self._max_frame_bytes)

    def _introduce(self, message: object) -> None:
        assert isinstance(message, HelloRequest), "the first request is a hello"
        self._is_introduced = True
        self.client_id = message.client_id[:CLIENT_ID_CHARS_MAX]
        self.decoder.limit(min(self._max_frame_bytes, UNPROVEN_BYTES_MAX))


def _unsupported_version(served: api.AnyApi, version: int) -> UnsupportedVersionError:
    return UnsupportedVersionError(
        f"version {version} of {served.key.name} is not supported;"
        f" this broker supports versions {served.min_version} to {served.max_version}",
        min_version=served.min_version,
        max_version=served.max_version,
    )


def _too_long(served: api.AnyApi, header_bytes: int) -> InvalidRequestError:
    return InvalidRequestError(
        f"{served.key.name}: the message has {header_bytes:,} bytes, the limit is"
        f" {served.header_bytes_max:,}; divide it into requests with fewer items"
    )


def _refuse(frame: Frame, error: BrokerError) -> RefusedRequest:
    reply = api.encode_error(
        error.to_wire(),
        api_key=frame.api_key,
        api_version=frame.api_version,
        correlation_id=frame.correlation_id,
    )
    return RefusedRequest(reply, error)


def wrong_reply(peer: object, suspects: Sequence[ApiKey], why: object) -> WireFormatError:
    """Return the error for a reply of `peer` that is wrong, to a request of one of these APIs."""
    asked = " or ".join(each.name for each in suspects) or "no request"
    return WireFormatError(
        f"{peer} sent a wrong reply to {asked}: {why}; check that a broker of a supported version"
        f" has this address"
    )


class Reply(msgspec.Struct, frozen=True, gc=False):
    """A received reply. The attachment is valid until the next `get_buffer`."""

    correlation_id: int
    message: object
    """The reply message, or a `BrokerError`."""
    attachment: memoryview
    throttled_by: int = 0
    """Code of the rate that throttles this client, 0 for none."""
    throttle_ms: int = 0
    """Milliseconds until the broker reads on."""


@final
class ClientConnection:
    """The client's end: requests in, frames out; received bytes in, replies out.

    Invariant: every correlation id in `_pending` was sent and not yet answered.
    """

    def __init__(self, *, max_frame_bytes: int) -> None:
        """Longer frames than `max_frame_bytes` end the connection."""
        self.decoder = FrameDecoder(max_frame_bytes=max_frame_bytes)
        self._offered: Sequence[ApiVersions] = ()
        self._versions: dict[ApiKey, int] = {ApiKey.HELLO: 1}
        """Chosen versions of the APIs that were asked for."""
        self._pending: dict[int, Api[Any, Any]] = {}
        self._next_correlation_id = 0
        self._misread: ApiKey | None = None

    @property
    def in_flight_count(self) -> int:
        """Number of requests that wait for their reply."""
        return len(self._pending)

    @property
    def suspects(self) -> list[ApiKey]:
        """APIs of the requests whose reply `next_reply` could not understand, sorted."""
        if self._misread is not None:
            return [self._misread]
        return sorted({api_.key for api_ in self._pending.values()})

    def set_offered(self, offered: Sequence[ApiVersions]) -> None:
        """Set the versions that the broker's hello offered."""
        self._offered = offered
        self._versions = {ApiKey.HELLO: 1}

    def version_of(self, api_: Api[_RequestType, _ReplyType]) -> int:
        """Return in which version an API is asked for.

        Raises:
            UnsupportedVersionError: The broker and this client share no version of the API.
        """
        version = self._versions.get(api_.key)
        if version is None:
            version = self._versions[api_.key] = api.choose_version(api_, self._offered)
        return version

    def send_request(
        self,
        api_: Api[_RequestType, _ReplyType],
        request: _RequestType,
        *,
        attachment_length: int = 0,
        expects_reply: bool = True,
    ) -> tuple[int, bytes]:
        """Return the correlation id and the frame to send, up to its attachment.

        Raises:
            UnsupportedVersionError: The broker and this client share no version of the API.
        """
        version = self._versions.get(api_.key) or self.version_of(api_)
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0xFFFF_FFFF
        if expects_reply:
            self._pending[correlation_id] = api_
        frame = api_.encode_request(
            request,
            version=version,
            correlation_id=correlation_id,
            attachment_length=attachment_length,
        )
        return correlation_id, frame

    def next_reply(self) -> Reply | None:
        """Return the next reply, `None` when more bytes are needed.

        Raises:
            WireFormatError: The bytes are not this protocol; close the connection.
        """
        while True:
            frame = self.decoder.next_frame()
            if frame is None:
                return None
            api_ = self._pending.pop(frame.correlation_id, None)
            if api_ is not None or frame.kind is not FrameKind.ERROR:
                break
            # A broker reports the refusal of a whole request even if no reply is expected.
        if api_ is None or frame.kind is FrameKind.REQUEST:
            raise WireFormatError(f"a reply to request {frame.correlation_id}, which is not open")
        if frame.api_key != api_.key:
            self._misread = api_.key
            raise WireFormatError(
                f"request {frame.correlation_id} was {api_.key.name},"
                f" its reply is of API {frame.api_key}"
            )
        message: object
        try:
            if frame.kind is FrameKind.ERROR:
                message = from_wire(api.decode_error(frame.header))
            else:
                message = api_.decode_reply(frame.header)
        except WireFormatError:
            self._misread = api_.key
            raise
        return Reply(
            frame.correlation_id, message, frame.attachment, frame.throttled_by, frame.throttle_ms
        )
