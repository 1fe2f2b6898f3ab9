"""Bytes of HTTP responses.

Pure: no clock, no I/O.
"""

from http import HTTPStatus
from typing import Final

from tidelog.gateway.sqs.http.messages import HttpResponse

CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
_STATUS_LINES: Final = {each.value: f"HTTP/1.1 {each.value} {each.phrase}" for each in HTTPStatus}


def render(response: HttpResponse, *, date: str, keeps_alive: bool, has_body: bool = True) -> bytes:
    """Return the bytes of a response.

    Args:
        response: The response.
        date: Value of the header `Date`: SDKs correct their clocks by it.
        keeps_alive: Whether another request may follow on the connection.
        has_body: Whether the body is sent; the reply to a `HEAD` request has none.
    """
    further = "".join([f"{name}: {value}\r\n" for name, value in response.headers])
    end = "\r\n" if keeps_alive else "Connection: close\r\n\r\n"
    head = (
        f"{_STATUS_LINES[response.status]}\r\n{further}Date: {date}\r\n"
        f"Content-Type: {response.content_type}\r\nContent-Length: {len(response.body)}\r\n{end}"
    )
    return head.encode("latin-1") + response.body if has_body else head.encode("latin-1")


def text_response(status: int, text: str) -> HttpResponse:
    """Return a response of one line of text."""
    return HttpResponse(status, "text/plain; charset=utf-8", f"{text}\n".encode())
