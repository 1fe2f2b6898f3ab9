"""RPC connection to a broker with many requests in flight.

Shell: owns one stream. Clients use it, and brokers use it for requests to other brokers.
"""

import math
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol, TypeVar, final

import msgspec
import trio

from tidelog.wire.config.quota_rates import QuotaRate
from tidelog.wire.env.connect_errors import diagnose
from tidelog.wire.env.env import BytesLike, Certificate, Network, Stream
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    HandshakeFailedError,
    RequestTimedOutError,
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
_READS_AT_ONCE: Final = 16
"""Maximum reads of a stream before other tasks go on."""

_HANDOVER_S: Final = 0.05
"""Seconds after a call for which the next caller may receive its reply itself."""
_UNWATCHED_S: Final = 0.001
"""Seconds after a call from which a lost connection would be known, had `run` waited for it."""
_NOT_SENT: Final = -1
"""Correlation id of a request whose outcome is known at once."""

Outcome = tuple[Any, memoryview] | Exception
"""A reply message and its attachment, or an error: the broker's refusal, or the failure of the
connection. The view is only valid during the callback."""


class RequestMeter(Protocol):
    """Counters of the requests of a connection."""

    sent_bytes: int
    received_bytes: int

    def throttled(self, rate: int, ms: int) -> None:
        """Count a notice that the broker reads on after `ms`; see `wire.config.quota_rates`."""
        ...

    def ended(self, api_key: ApiKey, seconds: float, outcome: object) -> None:
        """Count a request of so many seconds with its reply or error; must not raise."""
        ...


class _OpenRequest(msgspec.Struct):
    """Request that waits for its reply."""

    api_key: ApiKey
    on_outcome: Callable[[Outcome], None]
    sent_at: float
    expires_at: float
    """Time at which the connection counts as dead without a reply; times are trio's seconds."""
    kept_until: float
    """Time until which the broker may hold the request."""
    task: trio.lowlevel.Task | None = None
    """Task that waits for the reply while another one receives."""

    async def wait(self) -> None:
        """Wait while another task receives."""
        self.task = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._leave)

    def _leave(self, _: object) -> trio.lowlevel.Abort:
        self.task = None
        return trio.lowlevel.Abort.SUCCEEDED


@final
class RpcConnection:
    """Requests on one stream; replies may come in any order.

    The task of `run` receives. A call that is alone on the connection receives its reply itself
    instead, which saves a task switch and a turn of the loop. See decision 0050.

    Invariant: while a request is open, either `run` waits for the stream, or a caller does.
    """

    def __init__(self, stream: Stream, meter: RequestMeter | None = None) -> None:
        """Use `stream`; `run` must run in a task of its own."""
        self._stream = stream
        self._meter = meter
        self._now = trio.lowlevel.current_clock().current_time
        self._core = ClientConnection(max_frame_bytes=FRAME_BYTES_MAX)
        self._write_buffer = WriteBuffer(stream)
        self._open: dict[int, _OpenRequest] = {}
        """Requests in flight, by correlation id."""
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
        """Called after each reply from now on, unless the reply ends the connection."""
        self._is_left = False
        """Whether `run` leaves the stream to callers. The next four are for that, too."""
        self._has_caller = False
        """Whether a caller receives."""
        self._reading: trio.CancelScope | None = None
        """Scope of `run` while it receives."""
        self._is_parked = False
        """Whether `run` waits for the present caller to finish."""
        self._attention = trio.Event()
        """Wakes `run` while it leaves the stream to callers."""
        self._called_at = -math.inf
        """Time of the last call that was alone while `run` received."""
        self._answered_at = -math.inf
        """Time of the last reply."""
        self._check_at = math.inf
        """Time of the next check for requests without a reply; never after the first expiry."""
        self._checking: trio.CancelScope | None = None

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, as far as the stream tells now."""
        if (
            self._is_left
            and not self._has_caller  # It may be in a callback, whose reply is in the buffer.
            and not self._open
            and self._failure is None
            and self._now() - self._answered_at > _UNWATCHED_S
        ):
            self._receive_safely()
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
        return len(self._open)

    def throttled_until(self, rate: QuotaRate) -> float:
        """Return the time until which requests limited by a rate wait at the broker.

        In trio's seconds; in the past if they do not wait. All wait for the rates of requests and
        of time.
        """
        found = self._throttled_until
        if not found:
            return -math.inf
        return max(
            found.get(each, -math.inf) for each in (rate, QuotaRate.REQUESTS, QuotaRate.BUSY_MS)
        )

    def is_owed_a_reply(self, now: float) -> bool:
        """Return whether a request waits that the broker may not hold any longer."""
        return any(asked.kept_until <= now for asked in self._open.values())

    def submit(
        self,
        api_: Api[RequestType, ReplyType],
        request: RequestType,
        on_outcome: Callable[[Outcome], None] | None,
        *,
        attachment: Sequence[BytesLike] = (),
        kept_until: float = 0.0,
        patience: float = math.inf,
        is_awaited: bool = False,
        is_followed: bool = False,
    ) -> int:
        """Send a request without waiting; requests leave in the order of these calls.

        `on_outcome` is called exactly once, from the task that receives (or at once when the
        connection is lost already); `None` says that no reply will come. The attachment's buffers
        must not change until then. Use `wait_sent` to bound the buffered bytes.

        Args:
            api_: API.
            request: Message.
            on_outcome: Gets the reply or the error.
            attachment: Bytes after the message.
            kept_until: Time in trio's seconds before which no reply is expected, for a request with
                a wait at the broker.
            patience: Seconds without a reply after which the request fails with
                `RequestTimedOutError` and the connection is closed.
            is_awaited: Whether `wait_answered` is called next, without a checkpoint between.
            is_followed: Whether another request or `flush` is next, without a checkpoint between:
                both requests leave in one write.

        Returns:
            The correlation id, for `wait_answered`.
        """
        if self._failure is not None:
            if on_outcome is not None:
                on_outcome(_another(self._failure))
            return _NOT_SENT
        length = sum(map(len, attachment))
        try:
            correlation_id, frame = self._core.send_request(
                api_, request, attachment_length=length, expects_reply=on_outcome is not None
            )
        except BrokerError as error:
            if on_outcome is not None:
                on_outcome(error)
            return _NOT_SENT
        length += len(frame)
        if self._meter is not None:
            self._meter.sent_bytes += length
        if on_outcome is not None:
            now = self._now()
            self._open[correlation_id] = _OpenRequest(
                api_.key, on_outcome, now, now + patience, kept_until
            )
            if now + patience < self._check_at:
                self._check_by(now + patience)
            if self._is_left and not is_awaited:
                self._attend()
        self._write_buffer.send([frame, *attachment], length, is_followed=is_followed)
        return correlation_id

    def flush(self) -> None:
        """Send the requests that no other one has followed."""
        self._write_buffer.flush()

    def wait_answered(self, correlation_id: int) -> Coroutine[Any, Any, None]:
        """Wait until the outcome of a request was reported; a checkpoint.

        If cancelled, the outcome is reported later.
        """
        asked = self._open.get(correlation_id)
        if asked is None:
            return _pass()
        if self._may_receive():
            return self._receive_until_answered(correlation_id)
        self._attend()
        return asked.wait()

    async def call(
        self,
        api_: Api[RequestType, ReplyType],
        request: RequestType,
        *,
        take: Callable[[ReplyType, memoryview], Result],
        attachment: Sequence[BytesLike] = (),
        patience: float = math.inf,
    ) -> Result:
        """Send a request and return the result of `take` on the reply and its attachment.

        If cancelled, the request may or may not be executed; its reply is dropped. For `patience`
        see `submit`.

        Raises:
            BrokerError: The broker refused the request as a whole.
            ConnectionLostError: The request may or may not have been executed.
        """
        outcome: list[Result | Exception] = []

        def finish(result: Outcome) -> None:
            if isinstance(result, Exception):
                outcome.append(result)
            else:
                try:
                    outcome.append(take(result[0], result[1]))
                except WireFormatError as error:
                    outcome.append(error)

        await self.wait_answered(
            self.submit(
                api_, request, finish, attachment=attachment, patience=patience, is_awaited=True
            )
        )
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
            nursery.start_soon(self._expire)
            try:
                await self._receive()
            except (ConnectionLostError, WireFormatError) as error:
                self._end_by(error)
            finally:
                self.close()
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

    # -- receiving: by `run`, or by a caller ------------------------------------------------------

    def _attend(self) -> None:
        """Let `run` receive, unless a caller does."""
        if self._is_left and not self._has_caller:
            self._attention.set()

    def _may_receive(self) -> bool:
        """Return whether the caller of the only request in flight receives its reply."""
        if self._has_caller or len(self._open) > 1:
            return False
        if not self._is_left:
            # The stream changes hands for calls that follow each other, not for a rare one.
            called_at, self._called_at = self._called_at, self._now()
            self._is_left = self._called_at - called_at < _HANDOVER_S
            if self._is_left and self._reading is not None:
                self._reading.cancel()
        return self._is_left

    async def _receive_until_answered(self, correlation_id: int) -> None:
        self._has_caller = True
        try:
            while correlation_id in self._open:
                await self._stream.wait_readable()
                self._receive_now()
        except (ConnectionLostError, WireFormatError) as error:
            self._end_by(error)
        finally:
            self._has_caller = False
            if self._open or self._is_parked:
                self._attention.set()

    async def _receive(self) -> None:
        """Receive while no caller does, until the connection is lost."""
        looked_at = -math.inf
        while self._failure is None:
            is_used = self._has_caller or (self._answered_at > looked_at and not self._open)
            if self._is_left and is_used:  # Another call probably follows.
                looked_at = self._now()
                await self._wait_for_attention(_HANDOVER_S)
                if self._has_caller:
                    self._is_parked = True
                    await self._wait_for_attention(math.inf)
                    self._is_parked = False
                continue
            self._is_left = False
            with trio.CancelScope() as self._reading:
                while self._failure is None:
                    await self._stream.wait_readable()
                    if self._is_left:
                        break
                    self._receive_now()
            self._reading = None

    async def _wait_for_attention(self, seconds: float) -> None:
        if self._failure is None:
            self._attention = trio.Event()
            with trio.move_on_after(seconds):
                await self._attention.wait()

    def _receive_safely(self) -> None:
        try:
            self._receive_now()
        except (ConnectionLostError, WireFormatError) as error:
            self._end_by(error)

    def _receive_now(self) -> None:
        """Take the replies that are there, so that their callers go on in one turn of the loop.

        Raises:
            ConnectionLostError: The connection has ended.
            WireFormatError: A reply is wrong.
        """
        for _ in range(_READS_AT_ONCE):
            if not self._read():
                return

    def _read(self) -> bool:
        """Take the replies of one read; return whether there may be more.

        Raises:
            ConnectionLostError: The connection has ended.
            WireFormatError: A reply is wrong.
        """
        decoder = self._core.decoder
        buffer = decoder.get_buffer()
        received = self._stream.receive_nowait(buffer)
        if received is None:
            return False
        is_whole = received < len(buffer)
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
        return self._failure is None and not is_whole

    def _take(self, reply: Reply) -> None:
        self.reply_count += 1
        if reply.throttle_ms:
            self._note_throttle(reply.throttled_by, reply.throttle_ms)
        asked = self._open.pop(reply.correlation_id)
        message = reply.message
        self._answered_at = now = self._now()
        if self._meter is not None:
            self._meter.ended(asked.api_key, now - asked.sent_at, message)
        asked.on_outcome(
            message if isinstance(message, BrokerError) else (message, reply.attachment)
        )
        if asked.task is not None:
            trio.lowlevel.reschedule(asked.task)
        if self.on_understood is not None and self._failure is None:
            self.on_understood(asked.api_key)

    def _note_throttle(self, rate: int, ms: int) -> None:
        self._throttled_until[rate] = self._now() + ms / 1000
        if self._meter is not None:
            self._meter.throttled(rate, ms)

    # -- failures ---------------------------------------------------------------------------------

    async def _expire(self) -> None:
        """Close the connection when a request has no reply in time."""
        while True:
            with trio.CancelScope(deadline=self._check_at) as self._checking:
                await trio.sleep_forever()
            now = self._now()
            late = [each for each, asked in self._open.items() if asked.expires_at <= now]
            expired = [self._open.pop(correlation_id) for correlation_id in late]
            if expired:
                self.close()
            for asked in expired:
                patience = asked.expires_at - asked.sent_at
                what = f"the broker did not answer {asked.api_key.name} in {patience:g} s"
                self._end(asked, RequestTimedOutError(what))
            self._check_at = min(
                (asked.expires_at for asked in self._open.values()), default=math.inf
            )

    def _check_by(self, time: float) -> None:
        self._check_at = time
        if self._checking is not None:
            self._checking.deadline = time

    def _end_by(self, error: ConnectionLostError | WireFormatError) -> None:
        """End the connection because of an error of receiving."""
        if isinstance(error, WireFormatError):
            self._reject(self._core.suspects, error)
        else:
            self._fail(error)

    def _fail(self, failure: ConnectionLostError | WireFormatError) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._write_buffer.close()  # Not only the stream: a task may be in `wait_sent`.
        open_requests, self._open = self._open, {}
        for asked in open_requests.values():
            self._end(asked, _another(failure))
        self._attention.set()

    def _end(self, asked: _OpenRequest, error: Exception) -> None:
        if self._meter is not None:
            self._meter.ended(asked.api_key, self._now() - asked.sent_at, error)
        asked.on_outcome(error)
        if asked.task is not None:
            trio.lowlevel.reschedule(asked.task)


async def _pass() -> None:
    await trio.lowlevel.checkpoint()


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
