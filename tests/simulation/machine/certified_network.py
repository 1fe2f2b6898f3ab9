"""A network with certificates but without cryptography: the TLS of simulations.

Both ends of a connection show their certificate in the first bytes, and check that of the other
side by their own clock. So certificates expire, are swapped and are wrong as with real TLS. The
bytes that follow are those of the network below.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, final

from tidelog.wire.env.env import (
    BytesLike,
    Certificate,
    Clock,
    FileRegionSource,
    Listener,
    Network,
    Stream,
)
from tidelog.wire.errors import ConfigError, ConnectionLostError, HandshakeFailedError

_FIRST: Final = b"\x16\x03"
_ALERT: Final = b"\x15\x03\x03\x00"
_HEAD_BYTES: Final = 4


@final
@dataclass(frozen=True, slots=True)
class SimulatedCertificate:
    """A certificate, and the CA that signed it."""

    facts: Certificate
    authority: str = "ca"

    def encode(self) -> bytes:
        """Return the first bytes of a connection."""
        body = json.dumps([*self.facts, self.authority]).encode()
        return _FIRST + len(body).to_bytes(2, "big") + body


def a_certificate(
    uri: str, *, expires_at_ms: int, serial: str = "01", authority: str = "ca"
) -> SimulatedCertificate:
    """Return a certificate for `tidelog://CLUSTER/node/1` or another name."""
    return SimulatedCertificate(
        Certificate(uri, (uri,) if uri else (), serial, 0, expires_at_ms), authority
    )


@final
class CertifiedStream:
    """A stream whose ends know each other's certificate."""

    def __init__(self, stream: Stream, network: "CertifiedNetwork", *, is_server: bool) -> None:
        """Use `stream`; `handshake` comes first."""
        self._stream = stream
        self._network = network
        self._is_server = is_server
        self.is_encrypted = False
        self.peer_certificate: Certificate | None = None

    @property
    def peer(self) -> str:
        """See `wire.env.env.Stream`."""
        return self._stream.peer

    @property
    def local(self) -> tuple[str, int]:
        """See `wire.env.env.Stream`."""
        return self._stream.local

    async def handshake(self) -> None:
        """See `wire.env.env.Stream`."""
        if not self._is_server:
            await self._send(self._network.shown.encode())
        head = await self._receive(_HEAD_BYTES)
        if head == _ALERT:
            raise HandshakeFailedError("the other side refused the certificate of this side")
        if not head.startswith(_FIRST):
            raise HandshakeFailedError("the other side does not speak TLS", is_plain=True)
        body = json.loads(await self._receive(int.from_bytes(head[2:], "big")))
        *facts, authority = body
        subject, uris, serial, not_before_ms, expires_at_ms = facts
        certificate = Certificate(subject, tuple(uris), serial, not_before_ms, expires_at_ms)
        if authority != self._network.authority or expires_at_ms <= self._network.now_ms():
            await self._send(_ALERT)
            raise HandshakeFailedError(f"the certificate of {subject} is not valid")
        if self._is_server:
            await self._send(self._network.shown.encode())
        self.is_encrypted = True
        self.peer_certificate = certificate if certificate.uris else None

    async def _send(self, data: bytes) -> None:
        while data:
            sent = self._stream.send_nowait([data])
            data = data[sent:]
            if not sent:
                await self._stream.wait_writable()

    async def _receive(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            buffer = bytearray(count - len(data))
            received = self._stream.receive_nowait(memoryview(buffer))
            if received is None:
                await self._stream.wait_readable()
            elif not received:
                text = f"{self.peer} closed the connection in the handshake"
                raise (
                    ConnectionLostError(text)
                    if self._is_server
                    else HandshakeFailedError(text, is_plain=True)
                )
            else:
                data += bytes(buffer[:received])
        return data

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


@final
class CertifiedListener:
    """A listener whose streams have certificates."""

    def __init__(self, listener: Listener, accepted: Callable[[Stream], CertifiedStream]) -> None:
        """Wrap the streams of `listener`."""
        self._listener = listener
        self._accepted = accepted

    @property
    def address(self) -> tuple[str, int]:
        """See `wire.env.env.Listener`."""
        return self._listener.address

    async def accept(self) -> CertifiedStream:
        """See `wire.env.env.Listener`."""
        return self._accepted(await self._listener.accept())

    def close(self) -> None:
        """See `wire.env.env.Listener`."""
        self._listener.close()


@final
class CertifiedNetwork:
    """The network of one node or client; see `wire.env.env.SecureNetwork`."""

    def __init__(self, network: Network, clock: Clock, certificate: SimulatedCertificate) -> None:
        """Show `certificate` on all connections over `network`."""
        self._network = network
        self._clock = clock
        self.authority = "ca"
        """The CA that is trusted."""
        self.shown = certificate
        """The certificate in force."""
        self.in_files = certificate
        """The certificate that the next reload finds."""
        self.check: Callable[[Certificate], None] | None = None
        """Raises `ConfigError` for a certificate that must not be used."""
        self.reload_count = 0

    @property
    def certificate(self) -> Certificate:
        """See `wire.env.env.SecureNetwork`."""
        return self.shown.facts

    @property
    def authority_expires_at_ms(self) -> int:
        """See `wire.env.env.SecureNetwork`."""
        return 0

    def now_ms(self) -> int:
        """Return the time by which certificates are checked."""
        return self._clock.now_ms()

    async def reload(self) -> bool:
        """See `wire.env.env.SecureNetwork`."""
        self.reload_count += 1
        if self.in_files == self.shown:
            return False
        if self.in_files.authority != self.authority:
            raise ConfigError("the new certificate is not signed by the CA")
        if self.check is not None:
            self.check(self.in_files.facts)
        self.shown = self.in_files
        return True

    async def listen(self, host: str, port: int) -> CertifiedListener:
        """See `wire.env.env.Network`."""
        listener = await self._network.listen(host, port)
        return CertifiedListener(
            listener, lambda stream: CertifiedStream(stream, self, is_server=True)
        )

    async def connect(self, host: str, port: int) -> CertifiedStream:
        """See `wire.env.env.SecureNetwork`."""
        stream = await self._network.connect(host, port)
        certified = CertifiedStream(stream, self, is_server=False)
        try:
            await certified.handshake()
        except BaseException:
            certified.close()
            raise
        return certified
