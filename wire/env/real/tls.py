"""TLS 1.3 on the operating system's TCP, by the sockets of `ssl`.

Shell: owns sockets, and reads the files of certificates. See decision 0037.

A record of TLS holds 16 KiB at most. `TlsStream` reads on until the kernel has no more, so that
callers may take a buffer that is not full for the end of what there is, as with TCP.
"""

import hashlib
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, final

import trio

from tidelog.wire.env.connect_errors import CLOSED, NOT_TLS, tls_failure
from tidelog.wire.env.env import URI_SCHEME, BytesLike, Certificate, FileRegionSource
from tidelog.wire.env.real.certificate_files import (
    TlsFiles,
    authority_expiry_ms,
    check_key_mode,
    client_context,
    own_facts,
    read_facts,
    server_context,
)
from tidelog.wire.env.real.handshake_threads import HandshakeThreads
from tidelog.wire.env.real.real_env import run_in_thread
from tidelog.wire.env.real.tcp import TcpListener, TcpNetwork, TcpStream
from tidelog.wire.errors import ConfigError, ConnectionLostError, HandshakeFailedError

_RECORD_BYTES: Final = 16 << 10
"""Maximum bytes of one record."""
_OF_TLS: Final = b"\x16\x03"
"""First bytes of a TLS client. A frame that begins with them would be longer than any hello."""
_WRONG_VERSION: Final = b"\x15\x03\x03\x00\x02\x02\x46"
"""The alert `protocol_version`, which says to a plain client that TLS is spoken here."""
_LAST_BYTE_S: Final = 0.01
"""First pause while only the first byte is there, which readiness does not announce again. Each is
twice as long as the one before: many clients with one byte each cost little."""
_SESSIONS_MAX: Final = 256
_FILE_CHUNK: Final = 256 << 10


@final
class TlsStream:
    """One connected, non-blocking socket with TLS; `handshake` comes first."""

    def __init__(
        self,
        tcp: TcpStream,
        context: ssl.SSLContext,
        *,
        host: str | None = None,
        sessions: "TlsSessions | None" = None,
    ) -> None:
        """Take over the socket of `tcp`; connect to `host` as a client, or serve with `None`."""
        self._sessions = sessions
        self._place = (host or "", tcp.remote_port)
        self.peer = tcp.peer
        self.local = tcp.local
        self._is_server = host is None
        self._is_shaking = False
        """Whether a thread uses the socket, which must stay open."""
        self._is_closing = False
        self.is_encrypted = False
        """Whether the handshake is complete."""
        self._refused_bytes = 0
        """Bytes of a record that OpenSSL has made and not sent: the next call begins with them."""
        self._certificate: Certificate | None = None
        self._sock = context.wrap_socket(
            tcp.detach(),
            server_side=self._is_server,
            server_hostname=host,
            do_handshake_on_connect=False,
            session=None if sessions is None else sessions.take(self._place, context),
        )

    @property
    def peer_certificate(self) -> Certificate | None:
        """See `wire.env.env.Stream`."""
        return self._certificate

    def fileno(self) -> int | None:
        """See `wire.env.env.Stream`."""
        return self._sock.fileno() if self._sock.fileno() != -1 else None

    async def handshake(self, threads: HandshakeThreads | None = None) -> None:
        """See `wire.env.env.Stream`. Each step takes a thread of `threads`, if given."""
        wait = self.wait_readable if self._is_server else None
        while True:
            if wait is not None:
                await wait()
            wait = await self._step(threads)
            if wait is None:
                break
        self.is_encrypted = True
        facts = self._sock.getpeercert()
        self._certificate = read_facts(facts) if facts else None

    async def _step(
        self, threads: HandshakeThreads | None
    ) -> Callable[[], Coroutine[Any, Any, None]] | None:
        """Go on with the handshake; return what to wait for then, `None` at its end."""
        self._is_shaking = True
        try:
            if threads is None:
                self._sock.do_handshake()
            else:
                await threads.run(self._sock.do_handshake, self.peer)
        except ssl.SSLWantReadError:
            return self.wait_readable
        except ssl.SSLWantWriteError:
            return self.wait_writable
        except OSError as error:
            raise self._failed(error) from error
        finally:
            self._is_shaking = False
            if self._is_closing:
                self.close()
        return None

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """See `wire.env.env.Stream`."""
        received = 0
        try:
            while received < len(buffer):
                count = self._sock.recv_into(buffer[received:])
                if count == 0:
                    break
                received += count
                if count < _RECORD_BYTES and not self._sock.pending():
                    break  # The last record of what the other side sent at once.
        except ssl.SSLWantReadError:
            return received or None
        except OSError as error:
            if received:
                return received  # The next call raises again.
            raise self._lost(error) from error
        return received

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """See `wire.env.env.Stream`. Bytes that were not accepted must come first next time."""
        sent = 0
        view = memoryview(b"")
        try:
            for piece in _joined(pieces, at_least=self._refused_bytes):
                view = memoryview(piece)
                while view:
                    count = self._sock.send(view)
                    self._refused_bytes = 0
                    sent += count
                    view = view[count:]
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
            self._refused_bytes = min(len(view), _RECORD_BYTES)
            return sent
        except OSError as error:
            raise self._lost(error) from error
        return sent

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """See `wire.env.env.Stream`."""
        chunk = source.read_at(position, min(length, _FILE_CHUNK))
        if not chunk:
            raise ConnectionLostError("a file ends before the region that was to be sent")
        return self.send_nowait([chunk])

    async def wait_readable(self) -> None:
        """See `wire.env.env.Stream`."""
        self._check_open()
        if self._sock.pending():
            await trio.lowlevel.checkpoint()
            return
        try:
            await trio.lowlevel.wait_readable(self._sock)
        except (trio.ClosedResourceError, ValueError, OSError) as error:
            raise self._lost(error) from error

    async def wait_writable(self) -> None:
        """See `wire.env.env.Stream`."""
        self._check_open()
        try:
            await trio.lowlevel.wait_writable(self._sock)
        except (trio.ClosedResourceError, ValueError, OSError) as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """See `wire.env.env.Stream`."""
        self._is_closing = True
        # The number of a closed socket may be that of another connection at once.
        if self._sock.fileno() != -1 and not self._is_shaking:
            session = self._sock.session if self.is_encrypted else None
            if self._sessions is not None and session is not None:
                self._sessions.keep(self._place, self._sock.context, session)
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    def _check_open(self) -> None:
        if self._sock.fileno() == -1:
            raise self._lost(trio.ClosedResourceError())

    def _failed(self, error: OSError) -> ConnectionLostError:
        is_cut = isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError)
        if self._is_closing or (self._is_server and is_cut):
            return self._lost(error)
        return _handshake_failure(error, is_server=self._is_server)

    def _lost(self, error: Exception) -> ConnectionLostError:
        if self._is_closing or self._sock.fileno() == -1:
            return ConnectionLostError(f"connection to {self.peer} was closed here")
        if isinstance(error, ssl.SSLError) and error.reason:
            text, _ = tls_failure(error.reason, error.reason, is_server=self._is_server)
            return HandshakeFailedError(f"connection to {self.peer}: {text}")
        reason = error.strerror if isinstance(error, OSError) else error
        return ConnectionLostError(f"connection to {self.peer}: {reason}")


def _handshake_failure(error: OSError, *, is_server: bool) -> HandshakeFailedError:
    """Return the error for what went wrong in a handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason, detail = f"verify {error.verify_code}", error.verify_message
    elif isinstance(error, ssl.SSLEOFError) or not isinstance(error, ssl.SSLError):
        reason, detail = CLOSED, "it closed the connection"
    else:
        reason = error.reason or ""
        detail = reason.lower().replace("_", " ") or str(error)
    text, is_plain = tls_failure(reason, detail, is_server=is_server)
    return HandshakeFailedError(text, is_plain=is_plain)


def wrap_blocking(plain: socket.socket, files: TlsFiles, *, host: str) -> ssl.SSLSocket:
    """Return a connected, blocking socket after the handshake as a client of `host`.

    The timeout of `plain` holds for each step, and `plain` is closed if that fails.

    Raises:
        ConfigError: The files cannot be used; one line.
        HandshakeFailedError: One side does not accept the other.
    """
    try:
        return client_context(files).wrap_socket(plain, server_hostname=host)
    except OSError as error:
        raise _handshake_failure(error, is_server=False) from error
    finally:
        # The socket that is returned has taken the descriptor.
        plain.close()


def _joined(pieces: Sequence[BytesLike], *, at_least: int) -> list[BytesLike]:
    """Return the pieces in fewer: each makes a record of its own, and the first has `at_least`."""
    if len(pieces) == 1:
        return [pieces[0]]
    joined: list[BytesLike] = []
    short: list[BytesLike] = []
    short_bytes = 0
    for piece in pieces:
        is_first = not joined and short_bytes < at_least
        if is_first or short_bytes + len(piece) <= _RECORD_BYTES:
            short.append(piece)
            short_bytes += len(piece)
            continue
        if short:
            joined.append(b"".join(short))
        joined.append(piece)
        short, short_bytes = [], 0
    if short:
        joined.append(b"".join(short))
    return joined


@final
class TlsSessions:
    """TlsSessions of ended connections, by which the next one has a shorter handshake."""

    def __init__(self) -> None:
        """Begin without sessions."""
        self._kept: dict[tuple[str, int], tuple[ssl.SSLContext, ssl.SSLSession]] = {}

    def take(self, place: tuple[str, int], context: ssl.SSLContext) -> ssl.SSLSession | None:
        """Return the session of a host and port, once; `None` without one of this context."""
        of, session = self._kept.pop(place, (None, None))
        return session if of is context else None

    def keep(
        self, place: tuple[str, int], context: ssl.SSLContext, session: ssl.SSLSession
    ) -> None:
        """Keep a session, if the other side allows its use."""
        if session.has_ticket:
            self._kept[place] = (context, session)
            if len(self._kept) > _SESSIONS_MAX:
                del self._kept[next(iter(self._kept))]


@final
class AcceptedStream:
    """A connection whose first bytes tell whether it speaks TLS.

    After `handshake` its calls are those of the stream inside.
    """

    def __init__(
        self,
        tcp: TcpStream,
        context: Callable[[], ssl.SSLContext],
        *,
        is_required: bool,
        threads: HandshakeThreads,
    ) -> None:
        """Serve `tcp` with what `context` returns, or as it is unless TLS is required."""
        self.peer = tcp.peer
        self.local = tcp.local
        self.is_encrypted = False
        self.peer_certificate: Certificate | None = None
        self._tcp = tcp
        self._context = context
        self._is_required = is_required
        self._threads = threads
        self._stream: TcpStream | TlsStream = tcp

    def fileno(self) -> int | None:
        """See `wire.env.env.Stream`."""
        return self._stream.fileno()

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """See `wire.env.env.Stream`."""
        return self._stream.receive_nowait(buffer)

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """See `wire.env.env.Stream`."""
        return self._stream.send_nowait(pieces)

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """See `wire.env.env.Stream`."""
        return self._stream.send_file_nowait(source, position, length)

    async def wait_readable(self) -> None:
        """See `wire.env.env.Stream`."""
        await self._stream.wait_readable()

    async def wait_writable(self) -> None:
        """See `wire.env.env.Stream`."""
        await self._stream.wait_writable()

    def close(self) -> None:
        """See `wire.env.env.Stream`."""
        self._stream.close()

    async def handshake(self) -> None:
        """See `wire.env.env.Stream`."""
        first = await self._first_bytes()
        if first.startswith(_OF_TLS):
            try:
                stream = TlsStream(self._tcp, self._context())
            except OSError as error:  # Its first bytes are there, and the client is gone.
                raise ConnectionLostError(f"connection to {self.peer} was reset") from error
            self._stream = stream
            await stream.handshake(self._threads)
            self.is_encrypted = True
            self.peer_certificate = stream.peer_certificate
        elif self._is_required and first:
            # Unread bytes would make the system throw the alert away.
            self._tcp.receive_nowait(memoryview(bytearray(_RECORD_BYTES)))
            self._tcp.send_nowait([_WRONG_VERSION])
            raise HandshakeFailedError(NOT_TLS, is_plain=True)

    async def _first_bytes(self) -> bytes:
        pause_s = _LAST_BYTE_S
        while True:
            first = self._tcp.peek(len(_OF_TLS))
            if first is None:
                await self._tcp.wait_readable()
            elif first == _OF_TLS[:1]:
                await trio.sleep(pause_s)
                pause_s *= 2
            else:
                return first


@final
class TlsListener:
    """One listening socket, whose connections may speak TLS."""

    def __init__(self, tcp: TcpListener, accepted: Callable[[TcpStream], AcceptedStream]) -> None:
        """Take over `tcp`; `accepted` returns the stream of each of its connections."""
        self._tcp = tcp
        self._accepted = accepted

    @property
    def address(self) -> tuple[str, int]:
        """The host and port listened on."""
        return self._tcp.address

    async def accept(self) -> AcceptedStream:
        """See `wire.env.env.Listener`."""
        return self._accepted(await self._tcp.accept())

    def close(self) -> None:
        """See `wire.env.env.Listener`."""
        self._tcp.close()


async def _shaken(
    tcp: TcpStream, context: ssl.SSLContext, host: str, *, sessions: TlsSessions
) -> TlsStream:
    """Return a connection as a client, after the handshake.

    Raises:
        HandshakeFailedError: One side does not accept the other.
    """
    stream = TlsStream(tcp, context, host=host, sessions=sessions)
    try:
        await stream.handshake()
    except BaseException:
        stream.close()
        raise
    return stream


@final
class TlsClientNetwork:
    """Connections of a client with TLS. Its files are read again when they have changed."""

    def __init__(self, files: TlsFiles, tcp: TcpNetwork | None = None) -> None:
        """Trust the CAs of `files`, and use its certificate if it has one.

        Raises:
            ConfigError: The files cannot be used; one line.
        """
        self._files = files
        self._tcp = tcp or TcpNetwork()
        self._sessions = TlsSessions()
        self._seen = files.state()
        self._context = client_context(files)

    async def listen(self, host: str, port: int) -> TcpListener:
        """See `wire.env.env.Network`; clients that connect get no TLS."""
        return await self._tcp.listen(host, port)

    async def connect(self, host: str, port: int) -> TlsStream:
        """See `wire.env.env.SecureNetwork`."""
        self._renew()
        tcp = await self._tcp.connect(host, port)
        return await _shaken(tcp, self._context, host, sessions=self._sessions)

    def _renew(self) -> None:
        seen = self._files.state()
        if seen != self._seen:
            self._seen = seen
            # A half-written pair: the old one serves until the files change again.
            with suppress(ConfigError):
                self._context = client_context(self._files)


@final
class _Loaded(NamedTuple):
    """What one version of the files says."""

    digest: bytes
    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: Certificate


@final
class TlsNetwork:
    """The network of a node; see `wire.env.env.SecureNetwork`."""

    def __init__(
        self,
        files: TlsFiles,
        *,
        is_required: bool,
        check: Callable[[Certificate], None],
        tcp: TcpNetwork | None = None,
    ) -> None:
        """Load the certificate in `files`; serve and ask without TLS as well unless required.

        `check` raises if a certificate may not be used by this node.

        Raises:
            ConfigError: The files cannot be used; one line.
        """
        self._files = files
        self._is_required = is_required
        self._check = check
        self._tcp = tcp or TcpNetwork()
        self._sessions = TlsSessions()
        self._threads = HandshakeThreads()
        self._loaded = self._load(self._digest())

    @property
    def certificate(self) -> Certificate:
        """See `wire.env.env.SecureNetwork`."""
        return self._loaded.certificate

    @property
    def authority_expires_at_ms(self) -> int:
        """See `wire.env.env.SecureNetwork`."""
        return authority_expiry_ms(self._loaded.server)

    async def reload(self) -> bool:
        """See `wire.env.env.SecureNetwork`."""
        digest = await run_in_thread(self._digest)
        if digest == self._loaded.digest:
            return False
        self._loaded = await run_in_thread(lambda: self._load(digest))
        return True

    async def listen(self, host: str, port: int) -> TlsListener:
        """See `wire.env.env.Network`."""
        return TlsListener(await self._tcp.listen(host, port), self._accepted)

    async def connect(self, host: str, port: int) -> TcpStream | TlsStream:
        """See `wire.env.env.SecureNetwork`; without TLS if that is allowed and all there is."""
        tcp = await self._tcp.connect(host, port)
        try:
            return await _shaken(tcp, self._loaded.client, host, sessions=self._sessions)
        except HandshakeFailedError as error:
            if self._is_required or not error.is_plain:
                raise
        return await self._tcp.connect(host, port)

    def _accepted(self, tcp: TcpStream) -> AcceptedStream:
        return AcceptedStream(
            tcp,
            lambda: self._loaded.server,
            is_required=self._is_required,
            threads=self._threads,
        )

    def _digest(self) -> bytes:
        return hashlib.sha256(b"\0".join(self._files.read())).digest()

    def _load(self, digest: bytes) -> _Loaded:
        check_key_mode(self._files)
        server = server_context(self._files)
        certificate = own_facts(server, self._files)
        self._check(certificate)
        # Other nodes check a certificate that they get. One of a public CA may serve only.
        is_own = any(uri.startswith(URI_SCHEME) for uri in certificate.uris)
        client = client_context(self._files, has_certificate=is_own)
        return _Loaded(digest, server, client, certificate)
