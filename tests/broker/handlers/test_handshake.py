"""From the first moment on this broker says who it is, and to which cluster it belongs."""

import pytest

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.handlers.handshake import HandshakeHandler
from tidelog.wire.errors import BrokerNotReadyError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply, PeerStatusRequest
from tidelog.wire.messages.handshake import ApiVersions, HelloReply, HelloRequest
from tidelog.wire.protocol import api

NOTHING = memoryview(b"")
HELLO = HelloRequest("somebody", "1.2.3")
MiB = 1 << 20


def handler() -> HandshakeHandler:
    config = BrokerConfig(
        node_id=7, socket_request_max_bytes=4 * MiB, max_in_flight_requests_per_connection=9
    )
    return HandshakeHandler(config, [api.HELLO, api.METADATA, api.RAFT], version="0.9")


def status(cluster_id: str | None) -> PeerStatusReply:
    return PeerStatusReply(Peer(7, b"a disk"), [7, 8, 9], cluster_id, [])


def test_before_it_has_read_anything_it_says_what_it_speaks() -> None:
    assert handler().hello(HELLO, NOTHING) == HelloReply(
        broker_version="0.9",
        cluster_id="",
        node_id=7,
        apis=[ApiVersions(0, 1, 1), ApiVersions(1, 1, 3), ApiVersions(21, 1, 2)],
        max_frame_bytes=4 * MiB,
        max_in_flight_requests_per_connection=9,
    )


@pytest.mark.parametrize(("cluster_id", "said"), [(None, ""), ("a cluster", "a cluster")])
def test_it_names_its_cluster_as_soon_as_it_has_one(cluster_id: str | None, said: str) -> None:
    introduction = handler()
    introduction.status = status(cluster_id)

    assert introduction.hello(HELLO, NOTHING).cluster_id == said


def test_a_peer_that_asks_too_early_is_to_ask_again() -> None:
    with pytest.raises(BrokerNotReadyError, match="is reading its metadata"):
        handler().peer_status(PeerStatusRequest(8), NOTHING)


def test_peers_are_told_the_latest_word() -> None:
    introduction = handler()
    for cluster_id in (None, "a cluster"):
        introduction.status = status(cluster_id)

        assert introduction.peer_status(PeerStatusRequest(8), NOTHING) == status(cluster_id)
