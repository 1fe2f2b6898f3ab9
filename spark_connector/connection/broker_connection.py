"""Blocking connection to one broker.

Shell: owns a socket. A Spark task has its own process and waits for every reply, so it needs no
event loop. `wire.protocol.connection` encodes and decodes the bytes, as in all clients.
"""

import socket
import time
from collections.abc import Callable, Sequence
from typing import TypeVar, cast, final

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.reply_shapes import mismatch
from tidelog.spark_connector.connection.login import log_in
from tidelog.spark_connector.connection.throttling import THROTTLE_LOG
from tidelog.spark_connector.options import ConnectionOptions
from tidelog.wire.env.connect_errors import another_service, diagnose
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import (
    AuthenticationFailedError,
    BrokerError,
    ConnectError,
    ConnectionLostError,
    HandshakeFailedError,
    RequestTimedOutError,
    RetriableError,
    WireFormatError,
)
from tidelog.wire.messages.handshake import HelloReply, HelloRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api, ApiKey
from tidelog.wire.protocol.connection import ClientConnection, wrong_reply
from tidelog.wire.security.loopback import is_loopback

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")

CLIENT_VERSION = "1"
"""Client version that brokers log."""
_FRAME_BYTES_MAX = 256 << 20
_FIRST_BYTES = 40


@final
class BrokerConnection:
    """Requests and replies, one at a time.

    A caller that does not wait for its reply closes the connection, so no other caller gets it.
    """

    def __init__(
        self,
        address: Address,
        options: ConnectionOptions,
        *,
        timeout_s: float | None = None,
        on_wrong_reply: Callable[[Sequence[ApiKey], WireFormatError], None] | None = None,
    ) -> None:
        """Connect and exchange HELLO, in `timeout_s`, by default that of `options`.

        `on_wrong_reply` is called when a wrong reply ends the connection, with the APIs that it may
        have been meant for.

        Raises:
            ConnectError: No process listens there, or it is not a broker.
            RetriableError: The broker is not ready.
        """
        self._address = address
        self._on_wrong_reply = on_wrong_reply
        self._request: object = None
        """Request in flight, or the last one."""
        self._first_bytes: bytes | None = b""
        """Start of the answer to the hello, which may be of another service; then `None`."""
        if timeout_s is None:
            timeout_s = options.connect_timeout_ms / 1000
        deadline = time.monotonic() + timeout_s
        self._socket: socket.socket = _connected(address, timeout_s)
        if options.tls_ca is not None:
            self._socket = _with_tls(self._socket, address, options)
        self._core = ClientConnection(max_frame_bytes=_FRAME_BYTES_MAX)
        self.is_closed = False
        self._resumes_at = 0.0
        """Time at which a broker that throttles this task reads on, in monotonic seconds."""
        self.sent_count = 0
        """Requests sent so far, of any kind."""
        try:
            request = HelloRequest(options.client_id, CLIENT_VERSION)
            left_s = max(deadline - time.monotonic(), 0)
            hello, _ = self.call(api.HELLO, request, timeout_s=left_s)
            self._first_bytes = None
            self._core.set_offered(hello.apis)
            log_in(
                options,
                lambda step: self.call(api.AUTHENTICATE, step, timeout_s=timeout_s)[0],
                peer=str(address),
                is_private=options.tls_ca is not None or self._is_local(),
            )
        except (AuthenticationFailedError, RetriableError, ConnectError):
            self.close()
            raise
        except (BrokerError, ConnectionLostError, WireFormatError) as error:
            self.close()
            line = f"cannot connect to {address}: {error}; is this a tidelog broker?"
            if self._first_bytes and not isinstance(error, BrokerError):
                line = another_service(str(address), self._first_bytes, str(error))
            raise ConnectError(line) from error
        self.hello: HelloReply = hello

    @property
    def is_idle(self) -> bool:
        """Whether the connection is open without a request in flight."""
        return not self.is_closed and self._core.in_flight_count == 0

    def _is_local(self) -> bool:
        """Whether the broker is on this machine, so that others cannot read the bytes."""
        try:
            return is_loopback(str(self._socket.getpeername()[0]))
        except OSError as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """Close the connection; idempotent."""
        self.is_closed = True
        self._socket.close()

    def send(
        self,
        api_: Api[RequestType, ReplyType],
        request: RequestType,
        attachment: Sequence[BytesLike] = (),
    ) -> None:
        """Send a request, when the broker reads it; `receive` returns its reply.

        Raises:
            ConnectionLostError: The connection broke.
            UnsupportedVersionError: The broker does not know this API.
        """
        wait_s = self._resumes_at - time.monotonic()
        if wait_s > 0:
            time.sleep(wait_s)
        self.sent_count += 1
        self._request = request
        length = sum(len(piece) for piece in attachment)
        _, frame = self._core.send_request(api_, request, attachment_length=length)
        try:
            for piece in (frame, *attachment):
                self._socket.sendall(piece)
        except OSError as error:
            raise self._lost(error) from error

    def receive(
        self, api_: Api[RequestType, ReplyType], *, timeout_s: float
    ) -> tuple[ReplyType, memoryview]:
        """Return the reply to the request in flight, and its attachment.

        The view of the attachment is valid until the next reply arrives.

        Raises:
            BrokerError: The broker rejected the request.
            ConnectionLostError: The connection broke; the request may have been executed.
            RequestTimedOutError: No reply arrived in time; the connection is closed.
            WireFormatError: The reply is wrong; the connection is closed.
        """
        deadline = time.monotonic() + timeout_s
        try:
            while (reply := self._core.next_reply()) is None:
                self._receive_some(deadline)
        except WireFormatError as error:
            raise self._reject(self._core.suspects, error) from error
        except TimeoutError as error:
            self.close()
            raise RequestTimedOutError(
                f"{self._address} did not answer {api_.key.name} in {timeout_s:.0f} s"
            ) from error
        except OSError as error:
            raise self._lost(error) from error
        if reply.throttle_ms:
            now = time.monotonic()
            self._resumes_at = now + reply.throttle_ms / 1000
            THROTTLE_LOG.add(reply.throttled_by, reply.throttle_ms, now=now)
        if isinstance(reply.message, BrokerError):
            raise reply.message
        problem = mismatch(self._request, reply.message)
        if problem is not None:
            raise self.reject(api_, problem)
        return cast("ReplyType", reply.message), reply.attachment

    def call(
        self,
        api_: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        timeout_s: float,
        attachment: Sequence[BytesLike] = (),
    ) -> tuple[ReplyType, memoryview]:
        """Send a request and wait for its reply; raises as `send` and `receive` do."""
        assert self._core.in_flight_count == 0, "the reply of another request is due first"
        self.send(api_, request, attachment)
        return self.receive(api_, timeout_s=timeout_s)

    def reject(self, api_: Api[RequestType, ReplyType], why: object) -> WireFormatError:
        """Close the connection because of a wrong reply to `api_`; return the error to raise."""
        return self._reject([api_.key], why)

    def _reject(self, suspects: Sequence[ApiKey], why: object) -> WireFormatError:
        self.close()
        error = wrong_reply(self._address, suspects, why)
        if self._on_wrong_reply is not None:
            self._on_wrong_reply(suspects, error)
        return error

    def _receive_some(self, deadline: float) -> None:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self._socket.settimeout(left_s)
        buffer = self._core.decoder.get_buffer()
        count = self._socket.recv_into(buffer)
        if count == 0:
            raise self._lost(ConnectionResetError("the other side closed it"))
        if self._first_bytes == b"":
            self._first_bytes = bytes(buffer[: min(count, _FIRST_BYTES)])
        self._core.decoder.bytes_received(count)

    def _lost(self, error: OSError) -> ConnectionLostError:
        self.close()
        return ConnectionLostError(f"connection to {self._address}: {error.strerror or error}")


def _connected(address: Address, timeout_s: float) -> socket.socket:
    """Return a socket; raises `ConnectError` if no process listens there."""
    try:
        found = socket.create_connection((address.host, address.port), timeout_s)
    except OSError as error:
        is_refused = isinstance(error, ConnectionRefusedError)
        line = diagnose(address.host, address.port, error)
        raise ConnectError(line, is_refused=is_refused) from error
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return found


def _with_tls(plain: socket.socket, address: Address, options: ConnectionOptions) -> socket.socket:
    """Return the socket after the handshake of TLS.

    Raises:
        ConfigError: The files of certificates cannot be used.
        ConnectError: The handshake failed.
    """
    # Not at the top: most sources have no TLS.
    from tidelog.wire.env.real.certificate_files import TlsFiles
    from tidelog.wire.env.real.tls import wrap_blocking

    assert options.tls_ca is not None, "TLS was asked for"
    files = TlsFiles.of_settings(options.tls_ca, options.tls_certificate, options.tls_key)
    try:
        return wrap_blocking(plain, files, host=address.host)
    except HandshakeFailedError as error:
        raise ConnectError(f"cannot connect to {address}: {error}") from error
