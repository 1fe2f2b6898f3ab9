"""The source of an identity provider's keys: a file, or an address that is read by HTTPS.

Shell: reads files and connects. The certificate of the provider is checked against the authorities
of the system; `SSL_CERT_FILE` names others. Proxies are not used, and redirects are not followed.
"""

import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import SplitResult, urlsplit

import h11
import trio

from tidelog.wire.env.real.real_env import run_in_thread
from tidelog.wire.errors import ConfigError
from tidelog.wire.security.loopback import is_loopback

DOCUMENT_BYTES_MAX: Final = 256 << 10
_HEADERS_BYTES_MAX: Final = 16 << 10
_CHUNK_BYTES: Final = 16 << 10
_OK: Final = 200
_HTTPS_PORT: Final = 443
_HTTP_PORT: Final = 80


class JwksSourceError(OSError):
    """A provider has answered, but not with a document."""


def jwks_source(location: str) -> Callable[[], Awaitable[bytes]]:
    """Return what reads the document at `location`, the setting `jwt_keys`.

    Its result raises `OSError` if the document cannot be read; its caller sets the deadline.

    Raises:
        ConfigError: The location is an address that cannot be used.
    """
    if "://" not in location:
        return lambda: _read_file(location)
    try:
        url = urlsplit(location)
        is_usable = bool(url.hostname) and url.port != 0 and location.isascii()
        (url.hostname or "").encode("idna")  # As the resolver will.
    except ValueError as error:
        # Not shown: it may have a password.
        raise ConfigError("jwt_keys must be a file or https://HOST/PATH") from error
    if url.username is not None or url.password is not None:
        raise ConfigError("jwt_keys has a user, which an address of public keys does not need")
    if not is_usable or url.scheme not in ("https", "http"):
        raise ConfigError(f"jwt_keys is {location!r}, it must be a file or https://HOST/PATH")
    host = url.hostname or ""
    if url.scheme == "http" and not (is_loopback(host) or host == "localhost"):
        raise ConfigError(
            f"jwt_keys is {location}: keys by plain HTTP can be replaced on their way; use https"
        )
    return lambda: _read_url(url)


async def _read_file(path: str) -> bytes:
    def read() -> bytes:
        with Path(path).open("rb") as file:
            return file.read(DOCUMENT_BYTES_MAX + 1)

    return await run_in_thread(read)


async def _read_url(url: SplitResult) -> bytes:
    host = url.hostname or ""
    stream: trio.SocketStream | trio.SSLStream[trio.SocketStream]
    if url.scheme == "https":
        stream = await trio.open_ssl_over_tcp_stream(
            host,
            url.port or _HTTPS_PORT,
            https_compatible=True,
            ssl_context=ssl.create_default_context(),
        )
    else:
        stream = await trio.open_tcp_stream(host, url.port or _HTTP_PORT)  # noqa: TID251
    try:
        async with stream:
            return await _get(stream, url)
    except ssl.SSLError as error:
        raise JwksSourceError(f"TLS with {host} failed: {error.reason or error}") from error
    except trio.BrokenResourceError as error:
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):
            detail = getattr(cause, "verify_message", "") or cause.reason
            raise JwksSourceError(f"TLS with {host} failed: {detail}") from error
        raise JwksSourceError(f"the connection to {host} broke") from error


async def _get(stream: trio.abc.Stream, url: SplitResult) -> bytes:
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    core = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEADERS_BYTES_MAX)
    headers = [("Host", url.netloc), ("Accept", "application/json"), ("Connection", "close")]
    try:
        await stream.send_all(
            core.send(h11.Request(method="GET", target=target, headers=headers))
            + core.send(h11.EndOfMessage())
        )
        return await _document(stream, core)
    except h11.ProtocolError as error:
        raise JwksSourceError(f"{url.hostname} does not speak HTTP/1.1: {error}") from error


async def _document(stream: trio.abc.Stream, core: h11.Connection) -> bytes:
    found = b""
    while True:
        event = core.next_event()
        if event is h11.NEED_DATA:
            core.receive_data(bytes(await stream.receive_some(_CHUNK_BYTES)))
        elif isinstance(event, h11.Response):
            if event.status_code != _OK:
                raise JwksSourceError(f"the answer has status {event.status_code}, not {_OK}")
        elif isinstance(event, h11.Data):
            found += bytes(event.data)
            if len(found) > DOCUMENT_BYTES_MAX:
                raise JwksSourceError(f"the answer has more than {DOCUMENT_BYTES_MAX >> 10} KiB")
        elif isinstance(event, h11.EndOfMessage):
            return found
        elif not isinstance(event, h11.InformationalResponse):
            raise JwksSourceError("the answer is cut")
