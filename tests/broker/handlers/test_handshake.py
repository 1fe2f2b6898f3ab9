"""Tests of HELLO and PEER_STATUS, which a broker answers from its start on."""

import pytest

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.handlers.handshake import HandshakeHandler
from tidelog.wire.errors import BrokerNotReadyError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply, PeerStatusRequest
from tidelog.wire.messages.handshake import ApiVersions, HelloReply, HelloRequest
from tidelog.wire.protocol import api

NOTHING = memoryview(b"")
HELLO = HelloRequest("client", "1.2.3")
MiB = 1 << 20


def handler() -> HandshakeHandler:
    config = BrokerConfig(
        node_id=7, socket_request_max_bytes=4 * MiB, max_in_flight_requests_per_connection=9
    )
    return HandshakeHandler(config, [api.HELLO, api.METADATA, api.RAFT], version="0.9")


def status(cluster_id: str | None) -> PeerStatusReply:
    return PeerStatusReply(Peer(7, b"a disk"), [7, 8, 9], cluster_id, [])


def test_hello_lists_the_api_versions_before_the_metadata_is_read() -> None:
    assert handler().hello(HELLO, NOTHING) == HelloReply(
        broker_version="0.9",
        cluster_id="",
        node_id=7,
        apis=[ApiVersions(0, 1, 1), ApiVersions(1, 1, 4), ApiVersions(21, 1, 2)],
        max_frame_bytes=4 * MiB,
        max_in_flight_requests_per_connection=9,
    )


@pytest.mark.parametrize(("cluster_id", "said"), [(None, ""), ("a cluster", "a cluster")])
def test_hello_has_the_cluster_id_as_soon_as_it_is_known(cluster_id: str | None, said: str) -> None:
    introduction = handler()
    introduction.status = lambda: status(cluster_id)

    assert introduction.hello(HELLO, NOTHING).cluster_id == said


def test_a_peer_status_before_the_metadata_is_read_is_retriable() -> None:
    with pytest.raises(BrokerNotReadyError, match="is reading its metadata"):
        handler().peer_status(PeerStatusRequest(8), NOTHING)


def test_peer_status_returns_the_latest_status() -> None:
    introduction = handler()
    for latest in (status(None), status("a cluster")):
        introduction.status = lambda latest=latest: latest

        assert introduction.peer_status(PeerStatusRequest(8), NOTHING) == latest
