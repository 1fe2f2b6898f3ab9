"""Parser of HTTP/1.1 requests on httptools, whose C code takes 4 us for a request.

Pure: bytes in, requests out.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, final

import httptools
import msgspec

from tidelog.gateway.sqs.http.messages import HttpRequest

BODY_MAX_BYTES: Final = 8 << 20
"""Maximum size of a body: 1 MiB of payload, in which each byte may be an escape of six."""
HEAD_MAX_BYTES: Final = 64 << 10
"""Maximum size of the request line and headers of a request."""
_HEADERS_MAX: Final = 100


class ParsedRequest(msgspec.Struct):
    """One request, and what it says of its connection."""

    request: HttpRequest
    keeps_alive: bool
    """Whether another request may follow."""


class RequestRefusal(Exception):  # noqa: N818  (a reply, not a defect)
    """A request that is malformed or too large: the reply says why, and the connection ends."""

    def __init__(self, status: int, reason: str) -> None:
        """Refuse with an HTTP status and one line."""
        super().__init__(reason)
        self.status = status
        self.reason = reason


@final
class RequestParser:
    """Requests of one connection, in their order.

    Invariant: after `refusal` is set, no further request is parsed.
    """

    __slots__ = (
        "_body",
        "_fields",
        "_has_body_part",
        "_head_bytes",
        "_headers",
        "_is_in_head",
        "_parser",
        "_target",
        "held_bytes",
        "refusal",
        "requests",
        "wants_continue",
    )

    def __init__(self) -> None:
        """Expect the first request."""
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._fields: list[tuple[bytes, bytes]] = []
        """Header fields of the head that is being parsed."""
        self._headers: dict[bytes, bytes] = {}
        self._body: bytes | bytearray = b""
        self._has_body_part = False
        """Whether the bytes that are being parsed have a part of the body."""
        self._head_bytes = 0
        """Bytes of the request since its begin, or since the last part of its body."""
        self._is_in_head = False
        self.requests: deque[ParsedRequest] = deque()
        """Complete requests that were not taken yet."""
        self.refusal: RequestRefusal | None = None
        """Reply to what follows the last complete request."""
        self.held_bytes = 0
        """Size of the bodies of the request under way and of `requests`."""
        self.wants_continue = False
        """Whether the client waits for `100 Continue` before it sends the body."""

    @property
    def is_between(self) -> bool:
        """Whether no part of a further request has arrived."""
        return not (self._is_in_head or self._headers)

    def feed(self, data: memoryview) -> None:
        """Parse received bytes; results are in `requests`, `refusal` and `wants_continue`."""
        if self.refusal is not None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            # Another protocol was offered, not demanded: this request gets its answer, the last.
            if self.requests:
                self.requests[-1].keeps_alive = False
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, RequestRefusal):
                raise
            self.refusal = cause
        except httptools.HttpParserError as error:
            if not (self.requests and not self.requests[-1].keeps_alive):
                self.refusal = RequestRefusal(400, f"this is not an HTTP/1.1 request: {error}")
        self._count(len(data))

    def _count(self, fed_bytes: int) -> None:
        """Limit what is no body: also extensions of chunks, and fields behind the body."""
        if self._has_body_part:
            self._has_body_part = False
        elif not self.is_between:
            self._head_bytes += fed_bytes
            if self._head_bytes > HEAD_MAX_BYTES:
                self.refusal = _head_too_large()

    def on_message_begin(self) -> None:
        """Begin a request (callback of httptools)."""
        self._target, self._fields, self._headers = b"", [], {}
        self._body, self._has_body_part = b"", False
        self._head_bytes, self._is_in_head = 0, True
        if not self.requests:
            self.held_bytes = 0

    def on_url(self, part: bytes) -> None:
        """Take a part of the target (callback of httptools)."""
        self._target += part

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header (callback of httptools).

        Fields behind a body in chunks are dropped: they must not replace what its head says.

        Raises:
            RequestRefusal: There are too many.
        """
        if not self._is_in_head:
            return
        self._fields.append((name, value))
        if len(self._fields) > _HEADERS_MAX:
            raise _head_too_large()

    def on_headers_complete(self) -> None:
        """Check the head of a request (callback of httptools).

        Raises:
            RequestRefusal: The body would be too large.
        """
        self._is_in_head = False
        fields, self._fields = self._fields, []
        self._headers = {name.lower(): value for name, value in fields}
        if len(self._headers) < len(fields):
            self._headers = _joined(fields)
        length = self._headers.get(b"content-length")
        if length is not None and int(length) > BODY_MAX_BYTES:
            raise _body_too_large()
        if b"expect" in self._headers:
            is_1_0 = self._parser.get_http_version() == "1.0"  # It knows no interim responses.
            self.wants_continue = not is_1_0 and self._headers[b"expect"].lower() == b"100-continue"

    def on_body(self, part: bytes) -> None:
        """Take a part of the body (callback of httptools).

        Raises:
            RequestRefusal: The body is too large.
        """
        if len(self._body) + len(part) > BODY_MAX_BYTES:
            raise _body_too_large()
        self.held_bytes += len(part)
        if not self._body:
            self._body = part
        else:
            if isinstance(self._body, bytes):
                self._body = bytearray(self._body)  # Chunks may have a byte each.
            self._body += part
        self._head_bytes, self._has_body_part = 0, True
        self.wants_continue = False

    def on_message_complete(self) -> None:
        """Complete a request (callback of httptools)."""
        request = HttpRequest(
            self._parser.get_method(), self._target, self._headers, bytes(self._body)
        )
        self.requests.append(ParsedRequest(request, self._parser.should_keep_alive()))
        self._headers, self._body = {}, b""
        self.wants_continue = False


def _joined(fields: Iterable[tuple[bytes, bytes]]) -> dict[bytes, bytes]:
    """Return headers some of which have several fields: their values joined by commas."""
    values: dict[bytes, list[bytes]] = {}
    for name, value in fields:
        values.setdefault(name.lower(), []).append(value)
    return {name: b",".join(several) for name, several in values.items()}


def _head_too_large() -> RequestRefusal:
    return RequestRefusal(431, f"the head of a request may have {HEAD_MAX_BYTES} bytes at most")


def _body_too_large() -> RequestRefusal:
    return RequestRefusal(413, f"the body of a request may have {BODY_MAX_BYTES} bytes at most")
