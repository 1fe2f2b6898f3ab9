"""Load generator for servers with the API of SQS: many connections, one loop, no SDK.

It takes some 20 us a request, a tenth of what an SDK takes, so it does not limit what it measures.
It gets its order as JSON, connects, writes a line when it is ready, begins when it receives a line,
and writes its result. Each message begins with its number and the time at which it was due, by the
clock that all processes of a machine share.
"""

import hashlib
import hmac
import json
import re
import select
import socket
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from http import HTTPStatus
from http.client import HTTPConnection
from statistics import quantiles
from time import perf_counter, process_time
from typing import Final, final

import msgspec

REGION: Final = "us-east-1"
ACCOUNT: Final = "000000000000"
_HEAD_DIGITS: Final = 12, 20
"""Digits of the number of a message, and of its due time in nanoseconds."""
_RECEIVE_BYTES: Final = 1 << 18
_WAIT_S: Final = 20
_STALL_S: Final = 60.0
_LENGTH: Final = re.compile(rb"\r\nContent-Length: *(\d+)", re.IGNORECASE)
_HANDLE: Final = re.compile(rb'"ReceiptHandle" ?: ?"([^"]+)"')
_BODY: Final = re.compile(rb'"Body" ?: ?"(\d{12})(\d{20})')
_FAILED: Final = re.compile(rb'"Failed" ?: ?\[ ?\{')
_FIXED: Final = (
    b"POST / HTTP/1.1\r\nX-Amz-Target: AmazonSQS.%b\r\nHost: %b\r\n"
    b"Content-Type: application/x-amz-json-1.0\r\n"
    b"User-Agent: Boto3/1.40.0 md/Botocore#1.40.0 ua/2.1 os/linux md/arch#x86_64"
    b" lang/python#3.12 cfg/retry-mode#legacy Botocore/1.40.0\r\n"
    b"Accept-Encoding: identity\r\namz-sdk-invocation-id: 8bd8ae4e-3f0b-4a1c-8d33-7c3b3a4f12aa\r\n"
    b"amz-sdk-request: attempt=1\r\n%b"
)
"""Headers as long as those of boto3, because servers read them."""
_encode: Final = msgspec.json.encode


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsOrder:
    """Order of a load generator."""

    addresses: Sequence[tuple[str, int]]
    """Host and port of each server; connections take them in turn, as behind a balancer."""
    queues: Sequence[str]
    """Names of queues; connections take them in turn."""
    senders: int = 0
    """Connections that send."""
    workers: int = 0
    """Connections that receive and delete."""
    pollers: int = 0
    """Connections that poll without end; the generator runs until it is killed."""
    batch: int = 1
    count: int = 0
    """Messages that the senders send, and that the workers delete."""
    rate: float = 0.0
    """Messages a second; 0 for as many as possible."""
    value_bytes: int = 1024
    access_key: tuple[str, str] | None = None
    """Id and secret of the key that signs each request; by default a made-up signature."""


@dataclass(frozen=True, slots=True)
class SqsResult:
    """Result of a load; times by the clock of the machine, in seconds."""

    began: float
    ended: float
    cpu_seconds: float
    requests: int
    duplicates: int = 0
    """Messages that were received more than once."""
    seconds: dict[str, tuple[float, float]] = field(default_factory=dict[str, tuple[float, float]])
    """Median and 99 % of each kind of call, and of `delivered`: from due to received.

    With a rate, a send counts from its due time.
    """


@final
class _Signer:
    """Headers of a signed request (SigV4), as boto3 writes them."""

    def __init__(self, key: tuple[str, str] | None, host: str) -> None:
        self._host = host
        self._key_id = key[0] if key else "AKIAIOSFODNN7EXAMPLE"
        self._secret = key[1] if key else None
        now = datetime.now(UTC)  # noqa: TID251  (servers compare it with their clock)
        self._at, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
        self._scope = f"{day}/{REGION}/sqs/aws4_request"
        derived = b"AWS4" + (self._secret or "").encode()
        for part in (day, REGION, "sqs", "aws4_request"):
            derived = hmac.digest(derived, part.encode(), "sha256")
        self._derived = derived

    def headers(self, action: str, body: bytes) -> dict[str, str]:
        """Return the headers of the proof of a request."""
        signature = "0" * 64
        if self._secret:
            target = f"AmazonSQS.{action}"
            canonical = (
                f"POST\n/\n\ncontent-type:application/x-amz-json-1.0\nhost:{self._host}\n"
                f"x-amz-date:{self._at}\nx-amz-target:{target}\n\n"
                f"content-type;host;x-amz-date;x-amz-target\n{hashlib.sha256(body).hexdigest()}"
            )
            digest = hashlib.sha256(canonical.encode()).hexdigest()
            text = f"AWS4-HMAC-SHA256\n{self._at}\n{self._scope}\n{digest}"
            signature = hmac.digest(self._derived, text.encode(), "sha256").hex()
        return {
            "X-Amz-Date": self._at,
            "Authorization": (
                f"AWS4-HMAC-SHA256 Credential={self._key_id}/{self._scope},"
                " SignedHeaders=content-type;host;x-amz-date;x-amz-target,"
                f" Signature={signature}"
            ),
        }


@final
class _Connection:
    """One kept-alive connection with at most one request under way."""

    def __init__(self, address: tuple[str, int], url: str) -> None:
        self.socket = socket.create_connection((address[0], address[1]))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.url = url
        self.received = b""
        self.kind = ""
        self.asked_at = 0.0
        self.on_reply: Callable[[_Connection, bytes], None] | None = None

    def reply(self) -> bytes | None:
        """Return the body of the reply when it is complete."""
        more = self.socket.recv(_RECEIVE_BYTES)
        if not more:
            raise ConnectionError("the server closed a connection")
        self.received += more
        end = self.received.find(b"\r\n\r\n")
        if end < 0:
            return None
        length = _LENGTH.search(self.received, 0, end)
        assert length is not None, f"a reply without a length: {self.received[:200]!r}"
        if len(self.received) < end + 4 + int(length[1]):
            return None
        content, self.received = self.received, b""
        if not content.startswith(b"HTTP/1.1 200") or _FAILED.search(content, end):
            raise RuntimeError(f"the server refused {self.kind}: {content[:1000]!r}")
        return content[end + 4 :]


@final
class _SqsLoad:
    """The inside of a load generator."""

    def __init__(self, order: SqsOrder) -> None:
        self._order = order
        host, port = order.addresses[0]  # As a balancer, which has one name for all.
        self._host = f"{host}:{port}"
        self._signer = _Signer(order.access_key, self._host)
        self._head_of: dict[str, bytes] = {}
        self._epoll = select.epoll()
        self._by_fd: dict[int, _Connection] = {}
        self._idle_senders: deque[_Connection] = deque()
        self._workers: list[_Connection] = []
        self._pollers: list[_Connection] = []
        self._filler = "x" * (order.value_bytes - sum(_HEAD_DIGITS))
        self._sent = self._deleted = self._requests = self._duplicates = 0
        self._acknowledged = 0
        self._seen = bytearray(order.count)
        self._seconds: dict[str, list[float]] = {}
        self._began = 0.0
        queues, addresses = order.queues, order.addresses
        for number in range(order.senders + order.workers + order.pollers):
            url = f"http://{self._host}/{ACCOUNT}/{queues[number % len(queues)]}"
            connection = _Connection(addresses[number % len(addresses)], url)
            fd = connection.socket.fileno()
            self._by_fd[fd] = connection
            self._epoll.register(fd, select.EPOLLIN)
            if number < order.senders:
                self._idle_senders.append(connection)
            elif number < order.senders + order.workers:
                self._workers.append(connection)
            else:
                self._pollers.append(connection)

    def run(self) -> SqsResult:
        """Send and work until all messages are sent and deleted."""
        self._began, cpu_before = perf_counter(), process_time()
        for connection in self._workers:
            self._receive(connection)
        for connection in self._pollers:
            self._poll(connection)
        while not self._is_done:
            due_in = self._send_due()
            events = self._epoll.poll(min(due_in, _STALL_S))
            if not events and due_in > _STALL_S:
                raise TimeoutError(f"no reply within {_STALL_S:.0f} s")
            for fd, _ in events:
                connection = self._by_fd[fd]
                body = connection.reply()
                if body is not None:
                    self._replied(connection, body)
        result = SqsResult(
            self._began,
            perf_counter(),
            process_time() - cpu_before,
            self._requests,
            self._duplicates,
            {kind: middle_and_tail(seconds) for kind, seconds in self._seconds.items()},
        )
        for connection in self._by_fd.values():
            connection.socket.close()
        return result

    @property
    def _is_done(self) -> bool:
        order = self._order
        if order.pollers:
            return False
        is_sent = not order.senders or self._acknowledged >= order.count
        return is_sent and (not order.workers or self._deleted >= order.count)

    def _replied(self, connection: _Connection, body: bytes) -> None:
        seconds = self._seconds.setdefault(connection.kind, [])
        seconds.append(perf_counter() - connection.asked_at)
        assert connection.on_reply is not None
        connection.on_reply(connection, body)

    # -- requests ---------------------------------------------------------------------------------

    def _ask(
        self,
        connection: _Connection,
        action: str,
        parameters: dict[str, object],
        *,
        on_reply: Callable[[_Connection, bytes], None],
        asked_at: float = 0.0,
    ) -> None:
        body = _encode({"QueueUrl": connection.url, **parameters})
        self._requests += 1
        connection.kind = action.removesuffix("Batch")
        connection.on_reply = on_reply
        connection.asked_at = asked_at or perf_counter()
        head = self._head_of.get(action, b"")
        if not head or self._order.access_key:
            head = _FIXED % (action.encode(), self._host.encode(), self._signed(action, body))
            self._head_of[action] = head
        connection.socket.sendall(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))

    def _signed(self, action: str, body: bytes) -> bytes:
        headers = self._signer.headers(action, body)
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items()).encode()

    def _send_due(self) -> float:
        """Send what is due; return the seconds until the next message is due."""
        order = self._order
        while self._idle_senders and self._sent < order.count:
            due = perf_counter()
            if order.rate:
                due = self._began + self._sent / order.rate
                due_in = due - perf_counter()
                if due_in > 0:
                    return due_in
            taken = min(order.batch, order.count - self._sent)
            bodies = [
                f"{number:012d}{int(due * 1e9):020d}{self._filler}"
                for number in range(self._sent, self._sent + taken)
            ]
            self._sent += taken
            connection = self._idle_senders.popleft()
            if order.batch == 1:
                action, parameters = "SendMessage", _one("MessageBody", bodies)
            else:
                action, parameters = "SendMessageBatch", _many("MessageBody", bodies)
            self._ask(connection, action, parameters, on_reply=self._was_sent, asked_at=due)
        return _STALL_S + 1

    def _was_sent(self, connection: _Connection, body: bytes) -> None:
        self._acknowledged += body.count(b'"MessageId"')
        self._idle_senders.append(connection)

    def _receive(self, connection: _Connection) -> None:
        parameters: dict[str, object] = {
            "MaxNumberOfMessages": self._order.batch,
            "WaitTimeSeconds": _WAIT_S,
        }
        self._ask(connection, "ReceiveMessage", parameters, on_reply=self._was_received)

    def _was_received(self, connection: _Connection, body: bytes) -> None:
        handles = [handle.decode() for handle in _HANDLE.findall(body)]
        if not handles:
            self._receive(connection)
            return
        now = perf_counter()
        delivered = self._seconds.setdefault("delivered", [])
        for number, due in _BODY.findall(body):
            delivered.append(now - int(due) / 1e9)
            self._duplicates += self._seen[int(number)]
            self._seen[int(number)] = 1
        if self._order.batch == 1:
            action, parameters = "DeleteMessage", _one("ReceiptHandle", handles)
        else:
            action, parameters = "DeleteMessageBatch", _many("ReceiptHandle", handles)

        def deleted(connection: _Connection, body: bytes) -> None:
            del body
            self._deleted += len(handles)
            self._receive(connection)

        self._ask(connection, action, parameters, on_reply=deleted)

    def _poll(self, connection: _Connection, body: bytes = b"") -> None:
        assert not _HANDLE.search(body), "an idle queue has no messages"
        parameters: dict[str, object] = {"WaitTimeSeconds": _WAIT_S}
        self._ask(connection, "ReceiveMessage", parameters, on_reply=self._poll)


def _one(name: str, values: Sequence[str]) -> dict[str, object]:
    return {name: values[0]}


def _many(name: str, values: Sequence[str]) -> dict[str, object]:
    return {"Entries": [{"Id": str(at), name: value} for at, value in enumerate(values)]}


def middle_and_tail(seconds: Sequence[float]) -> tuple[float, float]:
    """Return the median and the 99th percentile."""
    if len(seconds) < 2:  # noqa: PLR2004  (what `quantiles` needs)
        return 0.0, 0.0
    percentiles = quantiles(seconds, n=100)
    return percentiles[49], percentiles[98]


def call(
    address: tuple[str, int],
    action: str,
    parameters: Mapping[str, object],
    *,
    access_key: tuple[str, str] | None = None,
) -> dict[str, str]:
    """Make one request on a connection of its own, unmeasured.

    Raises:
        RuntimeError: The server refused it.
    """
    host = f"{address[0]}:{address[1]}"
    body = json.dumps(parameters).encode()
    headers = {
        "Host": host,
        "Content-Type": "application/x-amz-json-1.0",
        "X-Amz-Target": f"AmazonSQS.{action}",
        **_Signer(access_key, host).headers(action, body),
    }
    connection = HTTPConnection(*address)
    connection.request("POST", "/", body, headers)
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    if reply.status != HTTPStatus.OK:
        raise RuntimeError(f"the server refused {action}: {content[:1000]!r}")
    found: dict[str, str] = json.loads(content or b"{}")
    return found


def _main(order: SqsOrder) -> None:
    load = _SqsLoad(order)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    sys.stdout.write(json.dumps(asdict(load.run())) + "\n")


if __name__ == "__main__":
    _main(SqsOrder(**json.loads(sys.argv[1])))
