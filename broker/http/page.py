"""Pages of the HTTP server, and the queries for them.

Pure: no I/O.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec


@dataclass(frozen=True, slots=True)
class Query:
    """A request for a page."""

    path: str
    """Path without the query string, decoded."""
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    """Values of the query string by name, decoded, in the order of the request."""
    accept: str = ""
    """The header `Accept`; empty if it is absent."""


@dataclass(frozen=True, slots=True)
class Page:
    """The reply to a query.

    The server sends chunk after chunk, and runs other tasks between two of them. It asks for the
    next chunk when the client has taken the last one. A list of chunks is sent with its length.
    """

    status: int
    content_type: str
    chunks: Iterable[bytes] | AsyncGenerator[bytes, None]
    headers: Sequence[tuple[str, str]] = ()
    """Further headers."""


Handler = Callable[[Query], Page | Awaitable[Page]]
"""Function that answers queries of one path; it may be asynchronous."""


def text_page(text: str, status: int = 200, headers: Sequence[tuple[str, str]] = ()) -> Page:
    """Return a page with one line of text."""
    return Page(status, "text/plain; charset=utf-8", [f"{text}\n".encode()], headers)


def json_page(content: object, status: int = 200) -> Page:
    """Return a page with `content` as JSON."""
    return Page(status, "application/json", [msgspec.json.encode(content) + b"\n"])
