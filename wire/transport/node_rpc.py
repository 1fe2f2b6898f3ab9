"""Connections from one node of a cluster to another.

Shell: opens streams. Both nodes prove that they know the secret of the cluster before the first
request; see `wire.protocol.node_proof`.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import final

import trio

from tidelog.wire.env.env import Certificate, Network
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    HandshakeFailedError,
    NotANodeError,
    UnsupportedVersionError,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.node_proof import NONCE_BYTES, NodeProver
from tidelog.wire.security.principal import Principal, PrincipalKind
from tidelog.wire.transport.rpc import RpcConnection, connect_stream, open_rpc


@final
class UnprovenNodeError(ConnectionLostError):
    """There is no node of this cluster at an address."""


@final
class NodeDialer:
    """Opens connections of one node to other nodes."""

    def __init__(
        self,
        network: Network,
        draw_bytes: Callable[[int], bytes],
        *,
        node_id: int,
        secret: bytes,
        identify: Callable[[Certificate], Principal] | None = None,
    ) -> None:
        """Connect as the node `node_id`, which knows the `secret` of its cluster.

        `draw_bytes` returns so many random bytes. `identify` returns the principal of another
        node's certificate, if such a certificate is proof enough.
        """
        self._identify = identify
        self._network = network
        self._draw_bytes = draw_bytes
        self._node_id = node_id
        self._secret = secret

    @asynccontextmanager
    async def open(self, host: str, port: int, *, name: str) -> AsyncGenerator[RpcConnection, None]:
        """Connect, exchange hellos and proofs, and keep the connection until the block ends.

        Raises:
            ConnectError: No connection could be made.
            ConnectionLostError: The connection broke before.
            UnprovenNodeError: There is no node of this cluster.
            WireFormatError: The other side does not speak this protocol.
        """
        async with open_rpc(
            self._network, host, port, client_id=name, client_version=""
        ) as connection:
            await self._prove(connection, f"{host}:{port}")
            yield connection

    async def connect(
        self, nursery: trio.Nursery, host: str, port: int, *, name: str
    ) -> RpcConnection:
        """Connect like `open`; the connection runs in `nursery` until it is closed.

        Raises:
            ConnectError: No connection could be made.
            ConnectionLostError: The connection broke before.
            UnprovenNodeError: There is no node of this cluster.
            WireFormatError: The other side does not speak this protocol.
        """
        connection = RpcConnection(await connect_stream(self._network, host, port))
        nursery.start_soon(connection.run)
        is_good = False
        try:
            await connection.introduce(name, "")
            await self._prove(connection, f"{host}:{port}")
            is_good = True
        finally:
            if not is_good:
                connection.close()
        return connection

    async def _prove(self, connection: RpcConnection, address: str) -> None:
        certificate = connection.peer_certificate
        if certificate is not None and self._identify is not None:
            self._check_certificate(connection, self._identify, certificate, address=address)
            return
        prover = NodeProver(self._secret, self._node_id, self._draw_bytes(NONCE_BYTES))
        try:
            answer = await connection.ask(api.PROVE_NODE, prover.ask())
            await connection.ask(api.PROVE_NODE, prover.prove(answer))
        except (NotANodeError, UnsupportedVersionError) as error:
            raise UnprovenNodeError(f"{address} is no node of this cluster: {error}") from error
        except BrokerError as error:
            raise ConnectionLostError(f"{address} accepts no nodes now: {error}") from error
        hello = connection.hello
        if hello is None or answer.node_id != hello.node_id:
            raise UnprovenNodeError(f"{address} has proved to be node {answer.node_id} only")

    def _check_certificate(
        self,
        connection: RpcConnection,
        identify: Callable[[Certificate], Principal],
        certificate: Certificate,
        *,
        address: str,
    ) -> None:
        """Check that the certificate of the other side is of the node that its hello names.

        Raises:
            UnprovenNodeError: It is not.
        """
        try:
            principal = identify(certificate)
        except HandshakeFailedError as error:
            raise UnprovenNodeError(f"{address} is no node of this cluster: {error}") from error
        node_id = None if connection.hello is None else connection.hello.node_id
        if principal != (PrincipalKind.NODE, str(node_id)):
            raise UnprovenNodeError(
                f"{address} says that it is node {node_id}, and its certificate is of {principal}"
            )
