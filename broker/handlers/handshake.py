"""Handshake: the identity of this broker, for clients and for nodes that look for their cluster."""

from collections.abc import Callable, Sequence
from typing import Any, final

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.wire.errors import BrokerNotReadyError
from tidelog.wire.messages.cluster import PeerStatusReply, PeerStatusRequest
from tidelog.wire.messages.handshake import ApiVersions, HelloReply, HelloRequest
from tidelog.wire.protocol.api import Api


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
