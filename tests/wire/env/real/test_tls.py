"""TLS streams and networks, over loopback and with certificates of a CA made for the test."""

import socket
import ssl
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from tests.certificates import Authority, copy, public_certificate, until
from tidelog.wire.env.env import Certificate, Listener, Stream
from tidelog.wire.env.real.certificate_files import TlsFiles
from tidelog.wire.env.real.tcp import TcpNetwork
from tidelog.wire.env.real.tls import TlsClientNetwork, TlsNetwork
from tidelog.wire.errors import ConfigError, ConnectionLostError, HandshakeFailedError
from tidelog.wire.security.certificate_name import certificate_name

HOST = "127.0.0.1"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def accept_all(certificate: Certificate) -> None:
    del certificate


def node_network(files: TlsFiles, *, is_required: bool = True) -> TlsNetwork:
    return TlsNetwork(files, is_required=is_required, check=accept_all)


class Server:
    """Echoes what its connections send, and keeps the outcomes of their handshakes."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.port = listener.address[1]
        self.hangs_up = False
        """Whether connections end with their first bytes, as those of a plain broker do."""
        self.failures: list[str] = []
        self.certificates: list[Certificate | None] = []
        self.streams: list[Stream] = []

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                nursery.start_soon(self._serve, await self.listener.accept())

    async def _serve(self, stream: Stream) -> None:
        try:
            await stream.handshake()
            self.certificates.append(stream.peer_certificate)
            self.streams.append(stream)
            while (data := await receive_some(stream)) and not self.hangs_up:
                await send_all(stream, data)
        except ConnectionLostError as error:
            self.failures.append(str(error))
        finally:
            stream.close()


@asynccontextmanager
async def serving(network: TlsNetwork | TcpNetwork) -> AsyncGenerator[Server, None]:
    listener = await network.listen(HOST, 0)
    server = Server(listener)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        yield server
        nursery.cancel_scope.cancel()
    listener.close()


def bundle(path: Path, *files: TlsFiles) -> str:
    """Write the CAs of `files` into one file."""
    path.write_bytes(b"".join(Path(each.authorities).read_bytes() for each in files))
    return str(path)


async def receive_some(stream: Stream, size: int = 1 << 20) -> bytes:
    buffer = bytearray(size)
    while (count := stream.receive_nowait(memoryview(buffer))) is None:
        await stream.wait_readable()
    return bytes(buffer[:count])


async def send_all(stream: Stream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        # As a write buffer does: the same bytes again, in pieces.
        sent = stream.send_nowait([rest[:1000], rest[1000:]] if len(rest) > 1000 else [rest])
        rest = rest[sent:]
        if not sent:
            await stream.wait_writable()


async def receive_exactly(stream: Stream, count: int) -> bytes:
    data = b""
    while len(data) < count:
        some = await receive_some(stream)
        assert some, "the other side has closed"
        data += some
    return data


async def echo(stream: Stream, data: bytes = b"a question") -> None:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(send_all, stream, data)
        assert await receive_exactly(stream, len(data)) == data


async def test_bytes_of_any_length_arrive_in_order(authority: Authority) -> None:
    files = authority.issue("node:1")
    client = TlsClientNetwork(TlsFiles(files.authorities))

    async with serving(node_network(files)) as server:
        stream = await client.connect(HOST, server.port)
        for length in (1, 16 << 10, (16 << 10) + 1, 5_000_000):
            await echo(stream, bytes(range(251)) * (length // 251) + b"x" * (length % 251))
        stream.close()

    assert stream.is_encrypted
    assert server.certificates == [None]
    assert server.failures == []


async def test_a_buffer_that_is_not_full_is_all_there_is(authority: Authority) -> None:
    files = authority.issue("node:1")
    client = TlsClientNetwork(TlsFiles(files.authorities))

    async with serving(node_network(files)) as server:
        stream = await client.connect(HOST, server.port)
        data = b"z" * 200_000  # Thirteen records.
        await send_all(stream, data)
        received = 0
        buffer = memoryview(bytearray(40_000))
        while received < len(data):
            await stream.wait_readable()
            count = stream.receive_nowait(buffer)
            while count is not None and count == len(buffer):
                received += count
                count = stream.receive_nowait(buffer)
            received += count or 0
        stream.close()

    assert received == len(data)


async def test_a_node_is_known_by_its_certificate_also_in_a_resumed_session(
    authority: Authority,
) -> None:
    files = authority.issue("node:1")
    other = node_network(authority.issue("node:2"))

    async with serving(node_network(files)) as server:
        for _ in range(2):
            stream = await other.connect(HOST, server.port)
            await echo(stream)
            assert stream.peer_certificate is not None
            stream.close()

    names = [certificate_name(each) for each in server.certificates if each is not None]
    assert [name and name.node_id for name in names] == [2, 2]


async def test_a_public_certificate_is_not_shown_to_other_nodes(tmp_path: Path) -> None:
    files = public_certificate(tmp_path / "public")

    async with serving(node_network(files)) as server:
        stream = await node_network(files).connect(HOST, server.port)
        await echo(stream)
        stream.close()

    assert server.certificates == [None]


async def test_a_ca_that_the_client_does_not_know_fails_on_both_sides(
    authority: Authority, tmp_path: Path
) -> None:
    elsewhere = Authority(tmp_path / "elsewhere").issue("node:1")
    client = TlsClientNetwork(TlsFiles(elsewhere.authorities))

    async with serving(node_network(authority.issue("node:1"))) as server:
        with pytest.raises(HandshakeFailedError, match="broker is not signed by a CA in tls_ca"):
            await client.connect(HOST, server.port)
        await until(lambda: server.failures)

    assert (
        "the client refused the certificate of this side: its CA is not known"
        in (server.failures[0])
    )


async def test_a_ca_that_the_broker_does_not_know_fails_on_both_sides(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue("node:1")
    stranger = Authority(tmp_path / "elsewhere").issue("node:2")
    client = TlsClientNetwork(TlsFiles(files.authorities, stranger.certificate, stranger.key))

    async with serving(node_network(files)) as server:
        stream = await client.connect(HOST, server.port)
        with pytest.raises(ConnectionLostError, match="the broker refused the certificate"):
            await receive_some(stream)
        stream.close()

    assert "the certificate of the client is not signed by a CA in ca.pem" in server.failures[0]


async def test_another_name_fails_at_the_client(authority: Authority) -> None:
    files = authority.issue("node:1", "other.example")
    client = TlsClientNetwork(TlsFiles(files.authorities))

    async with serving(node_network(files)) as server:
        with pytest.raises(HandshakeFailedError, match=r"is not valid for '127.0.0.1'; connect"):
            await client.connect(HOST, server.port)


async def test_an_expired_certificate_of_the_broker_fails_at_the_client(
    authority: Authority,
) -> None:
    files = authority.issue("node:1", days_old=30, days=10)
    client = TlsClientNetwork(TlsFiles(files.authorities))

    async with serving(node_network(files)) as server:
        with pytest.raises(HandshakeFailedError, match=r"broker has expired; replace cert\.pem"):
            await client.connect(HOST, server.port)


async def test_an_expired_certificate_of_a_client_fails_at_the_broker(
    authority: Authority,
) -> None:
    files = authority.issue("node:1")
    user = authority.issue("user:alice", days_old=30, days=10)
    client = TlsClientNetwork(user)

    async with serving(node_network(files)) as server:
        stream = await client.connect(HOST, server.port)
        with pytest.raises(ConnectionLostError, match="it has expired; issue a new one"):
            await receive_some(stream)
        stream.close()

    assert "the certificate of the client has expired" in server.failures[0]


async def test_a_plain_client_is_refused_with_an_alert_where_tls_is_required(
    authority: Authority,
) -> None:
    async with serving(node_network(authority.issue("node:1"))) as server:
        stream = await TcpNetwork().connect(HOST, server.port)
        await send_all(stream, b"\x20\x00\x00\x00 a hello in the clear")
        assert (await receive_some(stream))[:2] == b"\x15\x03"
        stream.close()

    assert "does not speak TLS, which this broker requires" in server.failures[0]


async def test_a_plain_client_is_served_where_tls_is_accepted(authority: Authority) -> None:
    files = authority.issue("node:1")

    async with serving(node_network(files, is_required=False)) as server:
        plain = await TcpNetwork().connect(HOST, server.port)
        await echo(plain)
        secured = await TlsClientNetwork(TlsFiles(files.authorities)).connect(HOST, server.port)
        await echo(secured)
        assert [each.is_encrypted for each in server.streams] == [False, True]
        plain.close()
        secured.close()


async def test_one_byte_of_a_hello_waits_for_the_second(authority: Authority) -> None:
    files = authority.issue("node:1")

    async with serving(node_network(files, is_required=False)) as server:
        plain = await TcpNetwork().connect(HOST, server.port)
        await send_all(plain, b"\x16")
        await trio.sleep(0.02)
        await send_all(plain, b"\x00 is a plain frame")
        assert await receive_exactly(plain, 18) == b"\x16\x00 is a plain frame"
        plain.close()


async def test_a_client_that_is_gone_before_the_handshake_is_a_lost_connection(
    authority: Authority,
) -> None:
    listener = await node_network(authority.issue("node:1")).listen(HOST, 0)
    client = socket.create_connection(listener.address)
    client.sendall(b"\x16\x03\x01\x02\x00")
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()  # A reset: the bytes that arrived before it are still there.
    stream = await listener.accept()
    with pytest.raises(ConnectionLostError, match="was reset"):
        await stream.handshake()
    stream.close()
    listener.close()


async def test_a_tls_client_tells_a_plain_server(authority: Authority) -> None:
    files = authority.issue("node:1")
    client = TlsClientNetwork(TlsFiles(files.authorities))

    async with serving(TcpNetwork()) as server:
        server.hangs_up = True
        with pytest.raises(HandshakeFailedError, match="does not seem to speak TLS") as raised:
            await client.connect(HOST, server.port)

    assert raised.value.is_plain


async def test_a_node_that_accepts_both_falls_back_to_plain_tcp_but_not_one_that_requires_tls(
    authority: Authority,
) -> None:
    files = authority.issue("node:1")

    async with serving(TcpNetwork()) as server:
        server.hangs_up = True
        stream = await node_network(files, is_required=False).connect(HOST, server.port)
        assert not stream.is_encrypted
        stream.close()
        with pytest.raises(HandshakeFailedError):
            await node_network(files).connect(HOST, server.port)


async def test_a_node_does_not_fall_back_from_a_wrong_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue("node:1")
    elsewhere = Authority(tmp_path / "elsewhere").issue("node:1")

    async with serving(node_network(elsewhere, is_required=False)) as server:
        with pytest.raises(HandshakeFailedError):
            await node_network(files, is_required=False).connect(HOST, server.port)


async def test_half_a_handshake_waits_and_can_be_cancelled(authority: Authority) -> None:
    listener = await node_network(authority.issue("node:1")).listen(HOST, 0)
    plain = await TcpNetwork().connect(*listener.address)
    await send_all(plain, b"\x16\x03\x01\x02\x00\x01\x00")
    stream = await listener.accept()

    with trio.move_on_after(0.05) as waiting:
        await stream.handshake()

    assert waiting.cancelled_caught
    stream.close()
    assert await receive_some(plain) in (b"", b"\x15\x03\x03\x00\x02\x01\x00")
    plain.close()
    listener.close()


async def test_garbage_after_the_first_bytes_ends_the_handshake(authority: Authority) -> None:
    async with serving(node_network(authority.issue("node:1"))) as server:
        plain = await TcpNetwork().connect(HOST, server.port)
        await send_all(plain, b"\x16\x03\x01\x00\x05garbage and more of it")
        await until(lambda: server.failures)
        plain.close()

    assert "handshake" in server.failures[0] or "TLS" in server.failures[0]


async def test_a_new_pair_serves_new_connections_and_old_ones_live_on(
    authority: Authority,
) -> None:
    files = authority.issue("node:1")
    network = node_network(files)
    client = TlsClientNetwork(TlsFiles(files.authorities))

    async with serving(network) as server:
        old = await client.connect(HOST, server.port)
        await echo(old)
        before = network.certificate
        assert not await network.reload()
        authority.issue("node:1")
        assert await network.reload()
        new = await client.connect(HOST, server.port)
        await echo(new)
        await echo(old)
        assert new.peer_certificate is not None
        assert new.peer_certificate.serial == network.certificate.serial != before.serial
        old.close()
        new.close()


async def test_a_key_that_does_not_fit_leaves_the_old_pair_in_force(
    authority: Authority,
) -> None:
    files = authority.issue("node:1")
    network = node_network(files)
    before = network.certificate
    copy(authority.issue("node:2").key, files.key)

    with pytest.raises(ConfigError, match="does not belong to the certificate"):
        await network.reload()

    assert network.certificate == before


async def test_a_chain_without_a_known_ca_leaves_the_old_pair_in_force(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue("node:1")
    network = node_network(files)
    elsewhere = Authority(tmp_path / "elsewhere").issue("node:1")
    authority.replace(files, elsewhere)

    with pytest.raises(ConfigError, match=r"is not signed by a CA in .*ca\.pem"):
        await network.reload()


async def test_two_cas_in_the_bundle_carry_a_rotation(authority: Authority, tmp_path: Path) -> None:
    files = authority.issue("node:1")
    successor = Authority(tmp_path / "next")
    renewed = successor.issue("node:1")
    both = bundle(tmp_path / "both.pem", files, renewed)
    client = TlsClientNetwork(TlsFiles(both))
    for each in (files, renewed):
        async with serving(node_network(each)) as server:
            stream = await client.connect(HOST, server.port)
            await echo(stream)
            stream.close()


async def test_a_client_reads_its_files_again_when_they_change(
    authority: Authority, tmp_path: Path
) -> None:
    files = authority.issue("node:1")
    elsewhere = Authority(tmp_path / "elsewhere").issue("node:1")
    mine = bundle(tmp_path / "mine.pem", elsewhere)
    client = TlsClientNetwork(TlsFiles(mine))

    async with serving(node_network(files)) as server:
        with pytest.raises(HandshakeFailedError):
            await client.connect(HOST, server.port)
        bundle(tmp_path / "mine.pem", elsewhere, files)
        stream = await client.connect(HOST, server.port)
        await echo(stream)
        stream.close()


def test_a_key_that_all_users_may_read_is_refused(authority: Authority) -> None:
    files = authority.issue("node:1")
    assert files.key is not None
    Path(files.key).chmod(0o644)

    with pytest.raises(ConfigError, match="every user may use it; run: chmod 600"):
        node_network(files)


def test_a_key_that_is_gone_leaves_the_old_pair_in_force(authority: Authority) -> None:
    files = authority.issue("node:1")
    assert files.key is not None
    network = node_network(files)
    before = network.certificate
    authority.replace(files, authority.issue("node:1", directory="renewed"))
    digest = network._digest()  # pyright: ignore[reportPrivateUsage]
    Path(files.key).unlink()  # Between two looks at the files.
    with pytest.raises(ConfigError, match="cannot read"):
        network._load(digest)  # pyright: ignore[reportPrivateUsage]
    assert network.certificate == before


def test_a_missing_file_is_named(authority: Authority) -> None:
    files = authority.issue("node:1")
    Path(files.authorities).unlink()

    with pytest.raises(ConfigError, match=r"cannot read .*ca\.pem: No such file"):
        node_network(files)


async def test_an_older_version_of_tls_is_refused(authority: Authority) -> None:
    files = authority.issue("node:1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(files.authorities)
    context.maximum_version = ssl.TLSVersion.TLSv1_2

    async with serving(node_network(files)) as server:
        tcp = await trio.open_tcp_stream(HOST, server.port)
        old = trio.SSLStream(tcp, context, server_hostname=HOST)
        with pytest.raises(trio.BrokenResourceError):
            await old.do_handshake()
        await trio.aclose_forcefully(old)
        await until(lambda: server.failures)

    assert "does not speak TLS 1.3" in server.failures[0]
