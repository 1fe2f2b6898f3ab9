"""The health of a cluster, by the description of one broker."""

from typing import Any

import msgspec
import pytest

from tests.wire.cluster_samples import EVENT
from tidelog.client.admin.cluster_health import ClusterSeverity, cluster_health
from tidelog.wire.messages.cluster_admin import DescribeClusterReply, NodeDescription

HEALTHY, DEGRADED, UNAVAILABLE = ClusterSeverity


def node(node_id: int, *, status: str = "alive", role: str = "voter") -> NodeDescription:
    return NodeDescription(node_id, f"node{node_id}", 8433, "", role, status, 4, 12)


def described(
    node_count: int = 3,
    **changes: Any,  # noqa: ANN401  (fields of the reply)
) -> DescribeClusterReply:
    """Return the description of a healthy cluster with 12 partitions, with changes."""
    reply = DescribeClusterReply(
        cluster_id="c",
        node_id=1,
        controller_id=2,
        term=7,
        nodes=[node(node_id) for node_id in range(1, node_count + 1)],
        partition_count=12,
        leaderless_count=0,
        unavailable_count=0,
        under_replicated_count=0,
        not_preferred_count=0,
        reassigning_count=0,
        data_losses=[],
        partitions=[],
        metadata_age_ms=400,
        metadata_age_max_ms=3000,
    )
    return msgspec.structs.replace(reply, **changes)


def test_a_healthy_cluster_needs_nothing() -> None:
    health = cluster_health(described(not_preferred_count=3, reassigning_count=1))

    assert (health.severity, health.reason, health.next_step) == (HEALTHY, "", "")
    assert (health.writable_count, health.readable_count) == (12, 12)
    assert (health.is_stale, health.unknown_for_ms) == (False, None)


@pytest.mark.parametrize("age_ms", [3001, 45_000, None])
def test_nothing_is_known_while_the_metadata_are_stale(age_ms: int | None) -> None:
    health = cluster_health(described(metadata_age_ms=age_ms))

    assert health.severity is UNAVAILABLE
    assert health.is_stale
    assert health.unknown_for_ms == age_ms
    assert (health.writable_count, health.readable_count) == (None, None)
    assert health.reason == "node 1 has no contact to a majority of the voters"
    assert health.next_step == (
        "start node 2 or 3, or restore their connection to node 1:"
        " 2 of 3 voters are needed for a majority"
    )


def test_metadata_are_current_for_the_time_of_a_session() -> None:
    assert cluster_health(described(metadata_age_ms=3000)).severity is HEALTHY


@pytest.mark.parametrize(
    ("node_count", "asked", "step"),
    [
        (5, 1, "start 2 of nodes 2, 3, 4 and 5, or restore their connection to node 1: 3 of 5"),
        (2, 1, "start node 2, or restore their connection to node 1: 2 of 2 voters"),
        (3, 9, "start 2 of nodes 1, 2 and 3, or restore their connection to node 9: 2 of 3"),
        (1, 1, "see the log of node 1, which should be a majority by itself"),
    ],
)
def test_the_step_to_a_majority_names_the_missing_voters(
    node_count: int, asked: int, *, step: str
) -> None:
    stale = described(node_count, node_id=asked, metadata_age_ms=9000)

    assert cluster_health(stale).next_step.startswith(step)


def test_partitions_that_cannot_be_used_make_a_cluster_unavailable() -> None:
    nodes = [node(1), node(2), node(3, status="fenced")]
    health = cluster_health(
        described(
            nodes=nodes,
            leaderless_count=1,
            unavailable_count=2,
            under_replicated_count=4,
            events=[EVENT],
        )
    )

    assert health.severity is UNAVAILABLE
    assert (health.writable_count, health.readable_count) == (9, 11)
    assert health.reason == (
        "1 of 12 partitions can be neither written nor read, 2 of 12 partitions cannot be written"
    )
    assert health.next_step == (
        "start node 3, or wait until it is alive; see tidelog cluster status --partitions"
    )


def test_partitions_without_a_leader_have_reasons_when_all_nodes_are_alive() -> None:
    health = cluster_health(described(leaderless_count=1, under_replicated_count=1))

    assert (
        health.next_step == "see tidelog cluster status --partitions for the reasons and remedies"
    )


@pytest.mark.parametrize(
    ("changes", "reason", "step"),
    [
        (
            {"nodes": [node(1), node(2, status="fenced"), node(3, status="stopping")]},
            "node 2 is fenced, node 3 is stopping",
            "start nodes 2 and 3, or wait until they are alive",
        ),
        (
            {"under_replicated_count": 2},
            "2 of 12 partitions have replicas out of sync",
            "wait until the replicas catch up: tidelog cluster status --partitions",
        ),
        (
            {"events": [EVENT]},
            "events that are not acknowledged: 1",
            "read and acknowledge them: tidelog cluster events",
        ),
        (
            {"controller_id": None},
            "the cluster elects a controller",
            "repeat the command in a few seconds",
        ),
    ],
)
def test_missing_redundancy_and_events_make_a_cluster_degraded(
    changes: dict[str, Any], reason: str, *, step: str
) -> None:
    health = cluster_health(described(**changes))

    assert (health.severity, health.reason, health.next_step) == (DEGRADED, reason, step)
    assert health.writable_count == 12


def test_a_drained_node_without_replicas_is_not_missed() -> None:
    gone = msgspec.structs.replace(node(4, status="fenced", role="none"), replica_count=0)

    nodes = [node(1), node(2), node(3), gone]
    assert cluster_health(described(nodes=nodes)).severity is HEALTHY


def test_a_broker_of_an_earlier_version_says_nothing_about_the_age_of_its_metadata() -> None:
    old = described(metadata_age_ms=None, metadata_age_max_ms=None)

    assert cluster_health(old).severity is HEALTHY
    alone = cluster_health(msgspec.structs.replace(old, controller_id=None))
    assert (alone.severity, alone.is_stale) == (UNAVAILABLE, False)
    assert alone.reason == "node 1 knows no controller"
    assert alone.next_step.startswith("start node 2 or 3")
