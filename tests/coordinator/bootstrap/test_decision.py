"""The formation of one cluster, and never two, by fresh nodes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.bootstrap.decision import Bootstrap, FormCluster, JoinCluster, WaitForPeers
from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply

FOUNDERS = [Peer(1, b"disk-1"), Peer(2, b"disk-2")]


def status(
    node_id: int, *peer_ids: int, cluster_id: str | None = None, disk_id: str | None = None
) -> PeerStatusReply:
    peer = Peer(node_id, (disk_id or f"disk-{node_id}").encode())
    return PeerStatusReply(
        peer, list(peer_ids or (1, 2, 3)), cluster_id, FOUNDERS if cluster_id else []
    )


def bootstrap(node_id: int, *heard: PeerStatusReply) -> Bootstrap:
    begun = Bootstrap(status(node_id))
    for each in heard:
        begun.peer_answered(each)
    return begun


def test_a_node_without_peers_forms_a_cluster_of_its_own() -> None:
    assert Bootstrap(status(7, 7)).decide() == FormCluster([Peer(7, b"disk-7")])


def test_the_peer_with_the_lowest_id_forms_the_cluster() -> None:
    decision = bootstrap(1, status(3), status(2)).decide()

    assert decision == FormCluster([Peer(node_id, b"disk-%d" % node_id) for node_id in (1, 2, 3)])


def test_the_other_peers_wait_for_the_cluster() -> None:
    assert bootstrap(2, status(1), status(3)).decide() == WaitForPeers("node 1 forms the cluster")


def test_no_node_forms_a_cluster_while_a_peer_is_silent() -> None:
    begun = bootstrap(1, status(2))

    assert begun.decide() == WaitForPeers(
        "a new cluster begins when all of its nodes answer; node 3 does not answer"
    )
    begun.peer_silent(2)
    assert begun.decide() == WaitForPeers(
        "a new cluster begins when all of its nodes answer; nodes 2, 3 do not answer"
    )


def test_the_reason_to_wait_names_a_peer_with_another_secret() -> None:
    begun = bootstrap(1, status(2))

    begun.peer_silent(3, refusal="host:1 is no node of this cluster")

    assert begun.decide() == WaitForPeers(
        "a new cluster begins when all of its nodes answer; host:1 is no node of this cluster"
    )


def test_an_existing_cluster_is_joined_despite_silent_peers() -> None:
    assert bootstrap(1, status(3, cluster_id="c")).decide() == JoinCluster("c", 3, FOUNDERS)


def test_a_late_node_joins_despite_another_peer_list_of_the_members() -> None:
    late = bootstrap(3, status(1, 1, cluster_id="c"))

    assert late.decide() == JoinCluster("c", 1, FOUNDERS)


def test_a_peer_with_another_disk_counts_with_its_latest_status() -> None:
    begun = bootstrap(1, status(2), status(3))
    begun.peer_answered(status(2, disk_id="another"))

    decision = begun.decide()

    assert isinstance(decision, FormCluster)
    assert decision.voters[1] == Peer(2, b"another")


def test_different_lists_of_peers_are_refused_in_one_line() -> None:
    with pytest.raises(ConfigError, match=r"node 1 was .* nodes 1, 2, 3, node 2 for nodes 1, 2;"):
        bootstrap(1, status(2, 1, 2), status(3)).decide()


def test_two_clusters_are_not_mixed() -> None:
    with pytest.raises(ConfigError, match="node 2 belongs to cluster a and node 3 to cluster b"):
        bootstrap(1, status(2, cluster_id="a"), status(3, cluster_id="b")).decide()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=40))
def test_peers_form_one_cluster_in_any_order_of_answers(
    steps: list[tuple[int, int, bool]],
) -> None:
    """In each step one node asks another, or finds it silent, and acts on its decision."""
    own = {node_id: status(node_id) for node_id in (1, 2, 3)}
    bootstraps = {node_id: Bootstrap(each) for node_id, each in own.items()}
    formed: list[str] = []
    full = [(a, b, True) for _ in range(2) for a in range(3) for b in range(3)]
    for asking, asked, is_reached in [*steps, *full]:
        node_id, other_id = asking + 1, asked + 1
        if own[node_id].cluster_id is not None:
            continue
        if not is_reached:
            bootstraps[node_id].peer_silent(other_id)
            continue
        bootstraps[node_id].peer_answered(own[other_id])
        decision = bootstraps[node_id].decide()
        cluster_id = None
        if isinstance(decision, FormCluster):
            cluster_id = f"cluster {len(formed)}"
            formed.append(cluster_id)
        elif isinstance(decision, JoinCluster):
            cluster_id = decision.cluster_id
        if cluster_id is not None:
            own[node_id] = PeerStatusReply(own[node_id].peer, [1, 2, 3], cluster_id, [])

    assert len(formed) == 1
    assert {each.cluster_id for each in own.values()} == set(formed)


def test_a_peer_address_of_another_node_is_refused() -> None:
    begun = bootstrap(1, status(2), status(3, cluster_id="a"))
    begun.stranger_answered(2, "10.0.0.2:8433", 7)

    with pytest.raises(
        ConfigError, match=r"node 2 is at 10\.0\.0\.2:8433, but node 7 answers there"
    ):
        begun.decide()
