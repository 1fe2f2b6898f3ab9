"""One connection of the HTTP server.

Shell: owns one stream. h11 parses requests and frames replies; this module bounds them.
"""

import inspect
import logging
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing, closing, suppress
from http import HTTPStatus
from typing import Final, final
from urllib.parse import parse_qs, unquote, urlsplit

import h11
import trio

from tidelog.broker.http.page import Handler, Page, Query, text_page
from tidelog.wire.env.env import Stream
from tidelog.wire.errors import ConnectionLostError

_log = logging.getLogger("tidelog.broker")

HEADERS_MAX_BYTES: Final = 16 << 10
"""Maximum size of the request line and headers of a request."""
REQUEST_S: Final = 10.0
"""Maximum time to receive a request, and again to send its reply, in seconds."""
IDLE_S: Final = 75.0
"""Time after which a connection without a request ends, in seconds: above the usual interval of
scrapes."""
_TARGET_MAX_BYTES: Final = 8 << 10
_PARAMETERS_MAX: Final = 100
_RECEIVE_BYTES: Final = 4 << 10
_LINGER_S: Final = 2.0
_VERSIONS: Final = (b"1.0", b"1.1")
_METHODS: Final = (b"GET", b"HEAD")
_LINGER_MAX_BYTES: Final = 1 << 20


@final
class _RefusedError(Exception):
    """A refusal of a request; the client gets its page."""

    def __init__(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        super().__init__(text)
        self.page = text_page(text, status, headers)


@final
class HttpConnection:
    """Requests of one client, answered one after the other."""

    def __init__(self, stream: Stream, pages: Mapping[str, Handler]) -> None:
        """Serve `pages` on `stream` with `run`."""
        self._stream = stream
        self._pages = pages
        self._core = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_MAX_BYTES)
        self._is_head = False
        self.is_idle = True
        """Whether no request is under way, so that `close` loses nothing."""

    def close(self) -> None:
        """Close the stream at once; `run` ends."""
        self._stream.close()

    async def run(self) -> None:
        """Answer requests until either side closes the connection."""
        with suppress(ConnectionLostError), closing(self._stream):
            while await self._has_request() and await self._answer_one():
                pass

    async def refuse(self, reason: str) -> None:
        """Answer 503 with `reason` without reading a request, and close the connection."""
        with suppress(ConnectionLostError), closing(self._stream):
            await self._send_refusal(_RefusedError(503, reason, ("Retry-After", "1")))
            await self._linger()

    async def _has_request(self) -> bool:
        """Wait for the first byte of a request; return whether it arrives in time."""
        if self._core.trailing_data[0]:
            return True
        self.is_idle = True
        with trio.move_on_after(IDLE_S) as waiting:
            await self._stream.wait_readable()
        self.is_idle = False
        return not waiting.cancelled_caught

    async def _answer_one(self) -> bool:
        """Answer one request; return whether the connection goes on.

        Raises:
            ConnectionLostError: The connection is broken, or a page failed after its first chunk.
        """
        try:
            request = await self._receive_in_time()
            if request is None:
                return False
            await self._answer_in_time(request)
        except _RefusedError as refusal:
            await self._send_refusal(refusal)
        if self._core.our_state is h11.DONE and self._core.their_state is h11.DONE:
            self._core.start_next_cycle()
            return True
        await self._linger()
        return False

    async def _receive_in_time(self) -> h11.Request | None:
        """Return what `_receive_request` does, after `REQUEST_S` at most."""
        with trio.move_on_after(REQUEST_S):
            return await self._receive_request()
        raise _RefusedError(408, f"a request must be complete within {REQUEST_S:.0f} s")

    async def _answer_in_time(self, request: h11.Request) -> None:
        """Send the page that a request names within `REQUEST_S`.

        Raises:
            _RefusedError: There is no such page, or it failed or took too long.
            ConnectionLostError: The connection is broken, or a part of the page was too late.
        """
        with trio.move_on_after(REQUEST_S) as sending:
            await self._send_page(await self._page_of(request))
        if sending.cancelled_caught:
            self._check_unanswered()
            raise _RefusedError(503, f"this page was not ready after {REQUEST_S:.0f} s")

    async def _receive_request(self) -> h11.Request | None:
        """Return the next request; `None` if the client has closed the connection.

        Raises:
            _RefusedError: The request is malformed or not allowed.
            ConnectionLostError: The connection is broken.
        """
        request: h11.Request | None = None
        self._is_head = False
        while True:
            event = self._next_event()
            if event is h11.NEED_DATA:
                self._core.receive_data(await self._receive())
            elif isinstance(event, h11.Request):
                self._is_head = event.method == b"HEAD"
                _check(event)
                request = event
            else:
                # The end of the request, since bodies are refused, or of the connection.
                return request

    def _next_event(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        try:
            return self._core.next_event()
        except h11.RemoteProtocolError as error:
            if error.error_status_hint != HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
                raise _RefusedError(400, f"this is not an HTTP/1.1 request: {error}") from error
            has_target = b"\n" in self._core.trailing_data[0]
            raise (_headers_too_long() if has_target else _target_too_long()) from error

    async def _receive(self) -> bytes:
        buffer = bytearray(_RECEIVE_BYTES)
        while (count := self._stream.receive_nowait(memoryview(buffer))) is None:
            await self._stream.wait_readable()
        return bytes(buffer[:count])

    async def _page_of(self, request: h11.Request) -> Page:
        """Return the page that a request names.

        Raises:
            _RefusedError: There is no such page, or it failed.
        """
        query = _query_of(request)
        handler = self._pages.get(query.path)
        if handler is None:
            raise _RefusedError(404, f"there is no such page; there are {', '.join(self._pages)}")
        try:
            page = handler(query)
            return await page if inspect.isawaitable(page) else page
        except Exception as error:
            raise self._page_failed(error) from error

    async def _send_page(self, page: Page) -> None:
        """Send a page, chunk by chunk, as fast as the client takes them.

        Raises:
            _RefusedError: The page failed before its first chunk.
            ConnectionLostError: The connection is broken, or the page failed later.
        """
        headers = [("Content-Type", page.content_type), ("Cache-Control", "no-store")]
        if isinstance(page.chunks, list | tuple):
            headers.append(("Content-Length", str(sum(map(len, page.chunks)))))
        if self._core.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        head = h11.Response(
            status_code=page.status,
            headers=[*headers, *page.headers],
            reason=HTTPStatus(page.status).phrase.encode(),
        )
        if self._is_head:
            await self._send(head, h11.EndOfMessage())
            return
        async with aclosing(_each(page.chunks)) as chunks:
            # The page makes its first chunk before the status is sent, since it may fail.
            first = await self._next_chunk(chunks)
            await self._send(head, h11.Data(data=first))
            while chunk := await self._next_chunk(chunks):
                await self._send(h11.Data(data=chunk))
        await self._send(h11.EndOfMessage())

    async def _next_chunk(self, chunks: AsyncGenerator[bytes, None]) -> bytes:
        """Return the next chunk, empty at the end."""
        try:
            return await anext(chunks, b"")
        except Exception as error:
            raise self._page_failed(error) from error

    def _page_failed(self, error: Exception) -> _RefusedError:
        """Log a defect of a page; return the reply for it.

        Raises:
            ConnectionLostError: A part of the page has been sent already.
        """
        _log.error("a page failed unexpectedly", exc_info=error)
        self._check_unanswered()
        return _RefusedError(500, "this page failed; the log of the broker has the reason")

    def _check_unanswered(self) -> None:
        if self._core.our_state not in {h11.IDLE, h11.SEND_RESPONSE}:
            raise ConnectionLostError("a reply cannot be completed")

    async def _send_refusal(self, refusal: _RefusedError) -> None:
        with trio.move_on_after(REQUEST_S) as sending:
            await self._send_page(refusal.page)
        if sending.cancelled_caught:
            raise ConnectionLostError("the client does not read its reply")

    async def _send(self, *events: h11.Response | h11.Data | h11.EndOfMessage) -> None:
        """Send events, as fast as the client takes their bytes; a checkpoint.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        rest = memoryview(b"".join(self._core.send(event) for event in events))
        while rest:
            sent = self._stream.send_nowait([rest])
            rest = rest[sent:]
            if not sent:
                await self._stream.wait_writable()
        await trio.lowlevel.checkpoint()

    async def _linger(self) -> None:
        """Drop the rest of the input for a short time.

        Closing a connection with unread input resets it, and the client would lose the reply.
        """
        self.is_idle = True
        left = _LINGER_MAX_BYTES
        with trio.move_on_after(_LINGER_S):
            while left > 0 and (data := await self._receive()):
                left -= len(data)
                await trio.lowlevel.checkpoint()


async def _each(
    chunks: Iterable[bytes] | AsyncGenerator[bytes, None],
) -> AsyncGenerator[bytes, None]:
    """Yield all chunks that are not empty."""
    if isinstance(chunks, Iterable):
        for chunk in filter(None, chunks):
            yield chunk
    else:
        async with aclosing(chunks):
            async for chunk in chunks:
                if chunk:
                    yield chunk


def _check(request: h11.Request) -> None:
    """Raise unless a request is for a page and has no body.

    Raises:
        _RefusedError: The reply says what is allowed.
    """
    if request.http_version not in _VERSIONS:
        raise _RefusedError(400, "the version of HTTP must be 1.0 or 1.1")
    if request.method not in _METHODS:
        raise _RefusedError(405, "only GET and HEAD are allowed", ("Allow", "GET, HEAD"))
    if len(request.target) > _TARGET_MAX_BYTES:
        raise _target_too_long()
    if sum(len(name) + len(value) for name, value in request.headers) > HEADERS_MAX_BYTES:
        raise _headers_too_long()
    lengths = [value for name, value in request.headers if name == b"content-length"]
    if lengths not in ([], [b"0"]) or any(
        name == b"transfer-encoding" for name, _ in request.headers
    ):
        raise _RefusedError(400, "a request may not have a body")


def _target_too_long() -> _RefusedError:
    return _RefusedError(414, f"the target of a request may have {_TARGET_MAX_BYTES} bytes at most")


def _headers_too_long() -> _RefusedError:
    return _RefusedError(431, f"all headers together may have {HEADERS_MAX_BYTES} bytes at most")


def _query_of(request: h11.Request) -> Query:
    """Return the path and the parameters of a request.

    Raises:
        _RefusedError: The target of the request is malformed.
    """
    accept = b", ".join(value for name, value in request.headers if name == b"accept")
    try:
        target = urlsplit(request.target.decode("ascii"))
        parameters = parse_qs(target.query, keep_blank_values=True, max_num_fields=_PARAMETERS_MAX)
    except ValueError as error:
        raise _RefusedError(400, f"the target of the request is malformed: {error}") from error
    return Query(unquote(target.path), parameters, accept.decode("latin-1"))
