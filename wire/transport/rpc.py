"""RPC connection to a broker with many requests in flight.

Shell: owns one stream. Clients use it, and brokers use it for requests to other brokers.
"""

from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar, cast, final

import trio

from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.env.connect_errors import diagnose
from tidelog.wire.env.env import BytesLike, Certificate, Network, Stream
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    HandshakeFailedError,
    WireFormatError,
    printable,
)
from tidelog.wire.messages.handshake import HelloReply, HelloRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api, ApiKey
from tidelog.wire.protocol.connection import ClientConnection, Reply, wrong_reply
from tidelog.wire.transport.write_buffer import WriteBuffer

RequestType = TypeVar("RequestType")
ReplyType = TypeVar("ReplyType")
Result = TypeVar("Result")

FRAME_BYTES_MAX = 256 << 20
"""Maximum frame of a client. It exceeds a broker's, because the client requested the data."""

_FIRST_BYTES = 64

Outcome = tuple[object, memoryview] | Exception
"""A reply message and its attachment, or an error: the broker's refusal, or the failure of the
connection. The view is only valid during the callback."""

_NOTHING = memoryview(b"")


class RequestMeter(Protocol):
    """Counters of the requests of a connection."""

    sent_bytes: int
    received_bytes: int

    def now(self) -> float:
        """Return monotonic seconds."""
        ...

    def throttled(self, rate: int, ms: int) -> None:
        """Count a notice that the broker reads on after `ms`; see `wire.config.quota_rates`."""
        ...

    def ended(self, api_key: ApiKey, sent_at: float, outcome: object) -> None:
        """Count a request with its reply message or error; must not raise."""
        ...


@final
class RpcConnection:
    """Requests on one stream; replies may come in any order."""

    def __init__(self, stream: Stream, meter: RequestMeter | None = None) -> None:
        """Use `stream`; `run` must run in a task of its own."""
        self._stream = stream
        self._meter = meter
        self._metered: dict[int, tuple[ApiKey, float]] = {}
        """API and time of each request in flight, by correlation id; only with a meter."""
        self._core = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)
        self._write_buffer = WriteBuffer(stream)
        self._callbacks: dict[int, Callable[[Outcome], None]] = {}
        self._kept_until: dict[int, float] = {}
        """Time until which the broker may hold a request, by correlation id; in trio's seconds."""
        self._failure: ConnectionLostError | WireFormatError | None = None
        """Error that ended the connection. Callers get a copy: see `_another`."""
        self.reply_count = 0
        """Number of replies; if it does not grow while requests wait, the broker is silent."""
        self._throttled_until: dict[int, float] = {}
        """Time until which the broker reads no request that a rate limits, by the rate's code."""
        self.hello: HelloReply | None = None
        """The broker's hello; `None` before `introduce`."""
        self.first_bytes = b""
        """The start of the answer to the hello, as evidence of a server of another kind."""
        self.suspects: Sequence[ApiKey] = ()
        """APIs of the requests that a wrong reply may belong to, if one ended the connection."""
        self.on_understood: Callable[[ApiKey], None] | None = None
        """Called after each reply to a later request, unless the reply ends the connection."""

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended."""
        return self._failure is not None

    @property
    def peer(self) -> str:
        """Address and port of the broker."""
        return self._stream.peer

    @property
    def is_encrypted(self) -> bool:
        """Whether others cannot read the bytes."""
        return self._stream.is_encrypted

    @property
    def peer_certificate(self) -> Certificate | None:
        """The certificate by which the broker has proved itself; `None` without TLS."""
        return self._stream.peer_certificate

    @property
    def wrong_reply(self) -> WireFormatError | None:
        """The error of the wrong reply that ended the connection, if one did."""
        return self._failure if isinstance(self._failure, WireFormatError) else None

    @property
    def in_flight_count(self) -> int:
        """Number of requests that wait for their reply."""
        return len(self._callbacks)

    def throttled_until(self, rate: QuotaRate) -> float:
        """Return the time until which requests limited by a rate wait at the broker.

        In trio's seconds; in the past if they do not wait. All wait for the rates of requests and
        of time.
        """
        found = self._throttled_until
        if not found:
            return float("-inf")
        return max(
            found.get(each, float("-inf")) for each in (rate, QuotaRate.REQUESTS, QuotaRate.BUSY_MS)
        )

    def is_owed_a_reply(self, now: float) -> bool:
        """Return whether a request waits that the broker may not hold any longer."""
        if not self._kept_until:
            return bool(self._callbacks)
        kept_count = sum(until > now for until in self._kept_until.values())
        return len(self._callbacks) > kept_count

    def submit(
        self,
        api_: Api[RequestType, ReplyType],
        request: RequestType,
        on_outcome: Callable[[Outcome], None] | None,
        *,
        attachment: Sequence[BytesLike] = (),
        kept_until: float = 0.0,
    ) -> None:
        """Send a request without waiting; requests leave in the order of these calls.

        `on_outcome` is called exactly once, from the connection's own task (or at once when
        the connection is lost already); `None` says that no reply will come. The attachment's
        buffers must not change until then. Use `wait_sent` to bound the buffered bytes. A request
        with a wait at the broker expects no reply before `kept_until`, in trio's seconds.
        """
        if self._failure is not None:
            if on_outcome is not None:
                on_outcome(_another(self._failure))
            return
        if self.on_understood is not None and on_outcome is not None:
            on_outcome = self._watched(api_.key, on_outcome, self.on_understood)
        length = sum(len(piece) for piece in attachment)
        try:
            correlation_id, frame = self._core.send_request(
                api_, request, attachment_length=length, expects_reply=on_outcome is not None
            )
        except BrokerError as error:
            if on_outcome is not None:
                on_outcome(error)
            return
        if on_outcome is not None:
            self._callbacks[correlation_id] = on_outcome
            if kept_until:
                self._kept_until[correlation_id] = kept_until
        if self._meter is not None:
            self._measure(api_.key, correlation_id, len(frame) + length)
        self._write_buffer.put(frame)
        for piece in attachment:
            self._write_buffer.put(piece)
        self._write_buffer.flush()

    async def call(
        self,
        api_: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        take: Callable[[ReplyType, memoryview], Result],
        attachment: Sequence[BytesLike] = (),
    ) -> Result:
        """Send a request and return the result of `take` on the reply and its attachment.

        If cancelled, the request may or may not be executed; its reply is dropped.

        Raises:
            BrokerError: The broker refused the request as a whole.
            ConnectionLostError: The request may or may not have been executed.
        """
        done = trio.Event()
        outcome: list[Result | Exception] = []

        def finish(result: Outcome) -> None:
            if isinstance(result, Exception):
                outcome.append(result)
            else:
                try:
                    outcome.append(take(cast("ReplyType", result[0]), result[1]))
                except WireFormatError as error:
                    outcome.append(error)
            done.set()

        self.submit(api_, request, finish, attachment=attachment)
        await done.wait()
        (result,) = outcome
        if isinstance(result, Exception):
            raise result
        return result

    async def ask(self, api_: Api[RequestType, ReplyType], request: RequestType) -> ReplyType:
        """Send a request and return the reply; see `call`."""
        return await self.call(api_, request, take=lambda reply, _: reply)

    async def introduce(self, client_id: str, client_version: str) -> HelloReply:
        """Exchange hellos; must be the first request on the connection."""
        reply = await self.ask(api.HELLO, HelloRequest(client_id, client_version))
        self._core.set_offered(reply.apis)
        self.hello = reply
        return reply

    def version_of(self, api_: Api[RequestType, ReplyType]) -> int:
        """Return in which version an API is asked for.

        Raises:
            UnsupportedVersionError: The broker and this client share no version of the API.
        """
        return self._core.version_of(api_)

    async def wait_sent(self, limit_bytes: int) -> None:
        """Wait until at most `limit_bytes` wait to be sent, or the connection is lost."""
        await self._write_buffer.wait_below(limit_bytes)

    async def run(self) -> None:
        """Receive replies and send queued bytes until the connection is lost or closed."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._write_buffer.run)
            try:
                await self._receive()
            except ConnectionLostError as error:
                self._fail(error)
            except WireFormatError as error:
                self._reject(self._core.suspects, error)
            finally:
                self._fail(ConnectionLostError(f"connection to {self._stream.peer} was closed"))
                nursery.cancel_scope.cancel()

    def close(self) -> None:
        """Close the connection; requests in flight fail with `ConnectionLostError`."""
        self._fail(ConnectionLostError(f"connection to {self._stream.peer} was closed"))

    def reject(self, api_: Api[RequestType, ReplyType], why: object) -> WireFormatError:
        """Close the connection because of a wrong reply to `api_`; return the error to raise.

        Requests in flight fail with that error.
        """
        return self._reject([api_.key], why)

    def _reject(self, suspects: Sequence[ApiKey], why: object) -> WireFormatError:
        error = wrong_reply(self._stream.peer, suspects, why)
        if self._failure is None:
            self.suspects = suspects
        self._fail(error)
        return error

    def _measure(self, api_key: ApiKey, correlation_id: int, sent_bytes: int) -> None:
        assert self._meter is not None, "there is a meter"
        self._meter.sent_bytes += sent_bytes
        if correlation_id in self._callbacks:
            self._metered[correlation_id] = (api_key, self._meter.now())

    def _watched(
        self, api_key: ApiKey, on_outcome: Callable[[Outcome], None], tell: Callable[[ApiKey], None]
    ) -> Callable[[Outcome], None]:
        def on_watched(outcome: Outcome) -> None:
            on_outcome(outcome)
            if self._failure is None:
                tell(api_key)

        return on_watched

    async def _receive(self) -> None:
        decoder = self._core.decoder
        while not self.is_lost:
            buffer = decoder.get_buffer()
            received = self._stream.receive_nowait(buffer)
            if received is None:
                await self._stream.wait_readable()
                continue
            if received == 0:
                raise ConnectionLostError(f"{self._stream.peer} closed the connection")
            if self.hello is None and len(self.first_bytes) < _FIRST_BYTES:
                self.first_bytes += bytes(buffer[: min(received, _FIRST_BYTES)])
            if self._meter is not None:
                self._meter.received_bytes += received
            decoder.bytes_received(received)
            # A callback may close the connection; the later requests then have their outcome.
            while self._failure is None and (reply := self._core.next_reply()) is not None:
                self._take(reply)
            if received < len(buffer):
                # The socket is drained. Another receive would cost a call and a turn of the loop.
                await self._stream.wait_readable()
            else:
                await trio.lowlevel.checkpoint()

    def _take(self, reply: Reply) -> None:
        self.reply_count += 1
        if reply.throttle_ms:
            self._note_throttle(reply.throttled_by, reply.throttle_ms)
        callback = self._callbacks.pop(reply.correlation_id)
        self._kept_until.pop(reply.correlation_id, None)
        message = reply.message
        if self._meter is not None:
            self._meter.ended(*self._metered.pop(reply.correlation_id), message)
        if isinstance(message, BrokerError):
            callback(message)
        else:
            callback((message, reply.attachment))

    def _note_throttle(self, rate: int, ms: int) -> None:
        self._throttled_until[rate] = trio.current_time() + ms / 1000
        if self._meter is not None:
            self._meter.throttled(rate, ms)

    def _fail(self, failure: ConnectionLostError | WireFormatError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._write_buffer.close()  # Not only the stream: a task may be in `wait_sent`.
        callbacks, self._callbacks = self._callbacks, {}
        metered, self._metered = self._metered, {}
        if self._meter is not None:
            for api_key, sent_at in metered.values():
                self._meter.ended(api_key, sent_at, failure)
        for callback in callbacks.values():
            callback(_another(failure))


def _another(failure: ConnectionLostError | WireFormatError) -> Exception:
    """Return a copy for one caller: the traceback of a shared error would grow with each raise."""
    another = type(failure)(*failure.args)
    another.__cause__ = failure.__cause__
    return another


async def connect_stream(network: Network, host: str, port: int) -> Stream:
    """Return a stream to an address.

    Raises:
        ConnectError: One line with the address, what failed, and what to try.
    """
    try:
        return await network.connect(host, port)
    except HandshakeFailedError as error:
        raise ConnectError(f"cannot connect to {printable(host)}:{port}: {error}") from error
    except OSError as error:
        is_refused = isinstance(error, ConnectionRefusedError)
        raise ConnectError(diagnose(host, port, error), is_refused=is_refused) from error


@asynccontextmanager
async def open_rpc(
    network: Network, host: str, port: int, *, client_id: str, client_version: str
) -> AsyncGenerator[RpcConnection, None]:
    """Connect, exchange hellos, and keep the connection until the block ends.

    Raises:
        ConnectError: No connection could be made.
        ConnectionLostError: The connection broke before the hellos were exchanged.
        WireFormatError: The other side does not speak this protocol.
    """
    stream = await connect_stream(network, host, port)
    connection = RpcConnection(stream)
    failure: Exception | None = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(connection.run)
        try:
            await connection.introduce(client_id, client_version)
            yield connection
        except Exception as error:  # noqa: BLE001 - raised again below
            failure = error
        finally:
            connection.close()
            nursery.cancel_scope.cancel()
    if failure is not None:
        # Outside of the nursery, which would wrap it into an ExceptionGroup.
        raise failure
