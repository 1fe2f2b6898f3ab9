"""TCP by the operating system.

Shell: owns sockets. The real implementation of the network seam of `wire.env.env`.
"""

import errno
import os
import socket
from collections.abc import Sequence
from typing import final

import trio

from tidelog.wire.env.env import BytesLike, Certificate, FileRegionSource
from tidelog.wire.errors import ConnectionLostError

_LISTEN_BACKLOG = 1024
_PORT_MAX = 65_535
_FILE_CHUNK = 256 * 1024
_KEEPALIVE_IDLE_S = 60
_KEEPALIVE_INTERVAL_S = 10
_KEEPALIVE_COUNT = 6

_SocketAddress = tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]


@final
class TcpStream:
    """One connected, non-blocking socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a connected socket."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _notice_dead_peers(sock)
        self._sock = sock
        host, port = sock.getsockname()[:2]
        self._local = (str(host), int(port))
        self.remote_port = 0
        """Port of the other side; 0 if it has disconnected already."""
        try:
            peer = sock.getpeername()
            self.remote_port = int(peer[1])
            self._peer = f"{peer[0]}:{peer[1]}"
        except OSError:  # The peer disconnected after accept; the next call raises.
            self._peer = "a disconnected peer"

    @property
    def peer(self) -> str:
        """The other side's address."""
        return self._peer

    @property
    def local(self) -> tuple[str, int]:
        """The host and port on this side."""
        return self._local

    @property
    def is_encrypted(self) -> bool:
        """See `wire.env.env.Stream`."""
        return False

    @property
    def peer_certificate(self) -> Certificate | None:
        """See `wire.env.env.Stream`."""
        return None

    def fileno(self) -> int | None:
        """See `wire.env.env.Stream`."""
        return self._sock.fileno() if self._sock.fileno() != -1 else None

    async def handshake(self) -> None:
        """See `wire.env.env.Stream`."""

    def detach(self) -> socket.socket:
        """Return the socket, for another owner; this stream must not be used any more."""
        return self._sock

    def peek(self, count: int) -> bytes | None:
        """Return the next bytes, up to `count`, without taking them; `None` when there are none.

        Raises:
            ConnectionLostError: The connection is broken.
        """
        try:
            return self._sock.recv(count, socket.MSG_PEEK)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._lost(error) from error

    def receive_nowait(self, buffer: memoryview) -> int | None:
        """See `wire.env.env.Stream`."""
        try:
            return self._sock.recv_into(buffer)
        except BlockingIOError:
            return None
        except OSError as error:
            raise self._lost(error) from error

    def send_nowait(self, pieces: Sequence[BytesLike]) -> int:
        """See `wire.env.env.Stream`."""
        try:
            if len(pieces) == 1:
                return self._sock.send(pieces[0])
            return self._sock.sendmsg(pieces)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._lost(error) from error

    def send_file_nowait(self, source: FileRegionSource, position: int, length: int) -> int:
        """See `wire.env.env.Stream`."""
        fileno = source.fileno()
        try:
            if fileno is None:
                chunk = source.read_at(position, min(length, _FILE_CHUNK))
                if chunk:
                    return self._sock.send(chunk)
                sent = 0
            else:
                sent = os.sendfile(self._sock.fileno(), fileno, position, length)
        except BlockingIOError:
            return 0
        except OSError as error:
            raise self._lost(error) from error
        if sent == 0:
            # The frame's length is sent already, so the frame cannot be completed.
            raise ConnectionLostError("a file ends before the region that was to be sent")
        return sent

    async def wait_readable(self) -> None:
        """See `wire.env.env.Stream`."""
        if self._sock.fileno() == -1:
            raise self._closed_before()
        try:
            await trio.lowlevel.wait_readable(self._sock)
        except (trio.ClosedResourceError, ValueError, OSError) as error:
            raise self._lost(error) from error

    async def wait_writable(self) -> None:
        """See `wire.env.env.Stream`."""
        if self._sock.fileno() == -1:
            raise self._closed_before()
        try:
            await trio.lowlevel.wait_writable(self._sock)
        except (trio.ClosedResourceError, ValueError, OSError) as error:
            raise self._lost(error) from error

    def close(self) -> None:
        """See `wire.env.env.Stream`."""
        if self._sock.fileno() != -1:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()

    def _closed_before(self) -> ConnectionLostError:
        # On a closed socket (descriptor -1) trio lets the first waiter wait for ever, and refuses
        # every further waiter of any closed socket as a second waiter of the same one.
        return self._lost(trio.ClosedResourceError())

    def _lost(self, error: Exception) -> ConnectionLostError:
        if self._sock.fileno() == -1:
            return ConnectionLostError(f"connection to {self._peer} was closed here")
        reason = error.strerror if isinstance(error, OSError) else error
        return ConnectionLostError(f"connection to {self._peer}: {reason}")


def _notice_dead_peers(sock: socket.socket) -> None:
    """Let an idle connection break two minutes after the peer's machine vanished."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _KEEPALIVE_IDLE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _KEEPALIVE_INTERVAL_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _KEEPALIVE_COUNT)


@final
class TcpListener:
    """One listening socket."""

    def __init__(self, sock: socket.socket) -> None:
        """Take over a listening socket."""
        self._sock = sock
        host, port = sock.getsockname()[:2]
        self._address = (str(host), int(port))

    @property
    def address(self) -> tuple[str, int]:
        """The host and port listened on."""
        return self._address

    async def accept(self) -> TcpStream:
        """See `wire.env.env.Listener`."""
        while True:
            await trio.lowlevel.wait_readable(self._sock)
            try:
                sock, _ = self._sock.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            return TcpStream(sock)

    def close(self) -> None:
        """See `wire.env.env.Listener`."""
        if self._sock.fileno() != -1:
            trio.lowlevel.notify_closing(self._sock)
            self._sock.close()


@final
class TcpNetwork:
    """The operating system's TCP."""

    async def listen(self, host: str, port: int) -> TcpListener:
        """See `wire.env.env.Network`."""
        found = await _addresses(host, port, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind(address)
            sock.listen(_LISTEN_BACKLOG)
        except OSError:
            sock.close()
            raise
        return TcpListener(sock)

    async def connect(self, host: str, port: int) -> TcpStream:
        """See `wire.env.env.Network`. Addresses of a name are tried one after the other."""
        failure: OSError | None = None
        for family, kind, protocol, _, address in await _addresses(host, port):
            sock = trio.socket.socket(family, kind, protocol)
            try:
                await sock.connect(address)
            except OSError as error:
                sock.close()
                # trio's message repeats the address; the caller adds it once.
                failure = OSError(error.errno, os.strerror(error.errno)) if error.errno else error
            except BaseException:
                sock.close()
                raise
            else:
                return TcpStream(socket.socket(fileno=sock.detach()))
        raise failure or OSError(errno.EADDRNOTAVAIL, "the name has no address")


async def _addresses(
    host: str, port: int, *, flags: int = 0
) -> Sequence[tuple[socket.AddressFamily, socket.SocketKind, int, str, _SocketAddress]]:
    if not 0 <= port <= _PORT_MAX:  # The resolver would take it modulo 65,536.
        raise OSError(errno.EINVAL, f"port {port} is not between 0 and {_PORT_MAX}")
    try:
        return await trio.socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    except UnicodeError as error:  # A label of the name is empty or longer than 63 bytes.
        raise socket.gaierror(socket.EAI_NONAME, "not a legal host name") from error
