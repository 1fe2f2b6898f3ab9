"""The source of an identity provider's keys: files, HTTPS, and servers that answer badly."""

import ssl
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import pytest
import trio
import trustme

from tidelog.jwks_source import DOCUMENT_BYTES_MAX, jwks_source
from tidelog.wire.errors import ConfigError

DOCUMENT = b'{"keys": []}'
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(DOCUMENT), DOCUMENT)


@asynccontextmanager
async def server(
    answer: bytes, context: ssl.SSLContext | None = None
) -> AsyncGenerator[tuple[int, list[bytes]]]:
    """Answer each connection with some bytes; yield the port, and the requests."""
    requests: list[bytes] = []

    async def serve(plain: trio.SocketStream) -> None:
        stream: trio.abc.Stream = plain
        if context is not None:
            stream = trio.SSLStream(plain, context, server_side=True, https_compatible=True)
        try:
            requests.append(bytes(await stream.receive_some(4096)))
            await stream.send_all(answer)
            await stream.aclose()
        except trio.BrokenResourceError:
            await plain.aclose()

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield listeners[0].socket.getsockname()[1], requests
        nursery.cancel_scope.cancel()


async def test_a_file_is_read_each_time(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_bytes(DOCUMENT)
    fetch = jwks_source(str(file))
    assert await fetch() == DOCUMENT

    file.write_bytes(b"later")
    assert await fetch() == b"later"
    file.unlink()
    with pytest.raises(OSError, match="No such file"):
        await fetch()


async def test_an_address_of_this_machine_may_be_plain() -> None:
    async with server(ANSWER) as (port, requests):
        assert await jwks_source(f"http://127.0.0.1:{port}/keys?v=1")() == DOCUMENT

    assert requests[0].startswith(b"GET /keys?v=1 HTTP/1.1\r\n")


async def test_the_certificate_of_a_provider_is_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    certificate = authority.issue_cert("127.0.0.1")
    certificate.configure_cert(context)  # pyright: ignore[reportUnknownMemberType]
    async with server(ANSWER, context) as (port, requests):
        fetch = jwks_source(f"https://127.0.0.1:{port}/keys")
        with pytest.raises(OSError, match=r"TLS with 127.0.0.1 failed: .*certificate"):
            await fetch()
        assert requests == []

        authority.cert_pem.write_to_path(tmp_path / "authorities.pem")
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
        assert await fetch() == DOCUMENT


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        (b"", "the answer is cut|does not speak HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "does not speak HTTP/1.1"),
        (ANSWER[:-1], "the answer is cut|does not speak HTTP"),
        (ANSWER.replace(b"200 OK", b"404 Not Found"), "status 404, not 200"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://evil.example/\r\n\r\n", "status 302, not 200"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (DOCUMENT_BYTES_MAX + 1), "more than 256 KiB"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * (1 << 20) + b"\r\n\r\n", "does not speak HTTP/1.1"),
    ],
)
async def test_another_answer_is_one_line(answer: bytes, problem: str) -> None:
    async with server(answer) as (port, _):
        with pytest.raises(OSError, match=problem) as refused:
            await jwks_source(f"http://localhost:{port}/keys")()

    assert "\n" not in str(refused.value)


async def test_a_closed_port_is_an_error() -> None:
    with pytest.raises(OSError, match=r"failed|refused"):
        await jwks_source("http://127.0.0.1:1/keys")()


@pytest.mark.parametrize(
    ("location", "problem"),
    [
        ("http://login.example.com/keys", "keys by plain HTTP can be replaced on their way"),
        ("ftp://login.example.com/keys", "must be a file or https://HOST/PATH"),
        ("file:///etc/passwd", "must be a file or https://HOST/PATH"),
        ("https:///keys", "must be a file or https://HOST/PATH"),
        ("https://login.example.com:x/keys", "must be a file or https://HOST/PATH"),
        ("https://[::1/keys", "must be a file or https://HOST/PATH"),
        ("https://login..example.com/keys", "must be a file or https://HOST/PATH"),
        ("https://login.example.com/\N{LATIN SMALL LETTER E WITH ACUTE}", "must be a file or"),
        ("https://user:secret@login.example.com:x/keys", "must be a file or https://HOST/PATH"),
        ("https://user:secret@login.example.com/keys", "jwt_keys has a user"),
    ],
)
def test_an_address_that_cannot_be_used_is_refused_at_once(location: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as refused:
        jwks_source(location)
    assert "secret" not in str(refused.value)
