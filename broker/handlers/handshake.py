"""Handshake: the identity of this broker, and the proof of the identity of other nodes."""

from collections.abc import Callable, Sequence
from random import Random
from typing import Any, final

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.requests.response import ResponseHandle
from tidelog.wire.errors import BrokerNotReadyError, NotANodeError
from tidelog.wire.messages.cluster import PeerStatusReply, PeerStatusRequest
from tidelog.wire.messages.handshake import (
    ApiVersions,
    HelloReply,
    HelloRequest,
    ProveNodeRequest,
)
from tidelog.wire.protocol.api import Api
from tidelog.wire.protocol.node_proof import NONCE_BYTES, NodeVerifier


@final
class HandshakeHandler:
    """Reports the identity of this broker, from the first connection on."""

    def __init__(
        self, config: BrokerConfig, apis: Sequence[Api[Any, Any]], *, version: str
    ) -> None:
        """Report the broker of `config`, which serves `apis`."""
        self._config = config
        self._version = version
        self._versions = [
            ApiVersions(int(served.key), served.min_version, served.max_version) for served in apis
        ]
        self.status: Callable[[], PeerStatusReply] | None = None
        """Returns the reply to nodes that look for their cluster; `None` before it is known."""

    def hello(self, request: HelloRequest, attachment: memoryview) -> HelloReply:
        """Return the identity of this broker and the versions of its APIs."""
        del request, attachment
        cluster_id = None if self.status is None else self.status().cluster_id
        return HelloReply(
            self._version,
            cluster_id or "",
            self._config.node_id,
            self._versions,
            self._config.socket_request_max_bytes,
            self._config.max_in_flight_requests_per_connection,
        )

    def peer_status(self, request: PeerStatusRequest, attachment: memoryview) -> PeerStatusReply:
        """Return the cluster that this node belongs to.

        Raises:
            BrokerNotReadyError: The node does not know it yet.
        """
        del request, attachment
        if self.status is None:
            raise BrokerNotReadyError("this node is reading its metadata")
        return self.status()


@final
class NodeIdentityHandler:
    """Answers nodes that prove their identity, and has the identity of each connection recorded."""

    def __init__(self, random: Random, *, node_id: int, secret: bytes | None) -> None:
        """Answer as the node `node_id`, which knows the `secret` of its cluster.

        `None` says that the nodes of this cluster prove themselves by certificates.
        """
        self._random = random
        self._node_id = node_id
        self._secret = secret

    def prove(self, request: ProveNodeRequest, response: ResponseHandle) -> None:
        """Answer one of the two requests of a node.

        Raises:
            NotANodeError: The sender does not know the secret, or a secret is no proof here.
        """
        if self._secret is None:
            raise NotANodeError(
                "the nodes of this cluster prove themselves by certificates; set tls_directory of"
                " the other node to one with its certificate"
            )
        context = response.context
        if context.verifier is None:
            nonce = self._random.randbytes(NONCE_BYTES)
            context.verifier = NodeVerifier(self._secret, self._node_id, nonce)
            context.node_id = None
        answer = context.verifier.answer(request)
        context.node_id = context.verifier.proven_id
        response.reply(answer)
