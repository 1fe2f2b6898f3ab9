"""The health of a cluster, as far as the description of one broker shows it.

Pure: no clock, no I/O. A broker without contact to a majority describes the past. Its description
then says nothing about the other nodes, and so nothing about partitions.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, final

from tidelog.wire.messages.cluster_admin import DescribeClusterReply, NodeDescription


@final
class ClusterSeverity(StrEnum):
    """How urgently a cluster needs an administrator."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    """All partitions can be written and read; redundancy is missing, or events are not
    acknowledged."""
    UNAVAILABLE = "unavailable"
    """Some partition cannot be written or read, or the contacted broker has no majority."""


@final
@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """The health of a cluster, with the reason and the next step of an administrator."""

    severity: ClusterSeverity
    reason: str
    """One line; empty if the cluster is healthy."""
    next_step: str
    """One line: what to do next; empty if there is nothing to do."""
    is_stale: bool
    """Whether the metadata of the contacted broker are stale. The present state of other nodes and
    of partitions is unknown then, and the description has the last known figures."""
    unknown_for_ms: int | None
    """Milliseconds since the metadata were current, while they are stale; `None` otherwise, and if
    the contacted broker has had no majority since its start."""
    writable_count: int | None
    """Partitions that accept records with `acks="all"`; `None` while the metadata are stale."""
    readable_count: int | None
    """Partitions that consumers can read; `None` while the metadata are stale."""


def cluster_health(cluster: DescribeClusterReply) -> ClusterHealth:
    """Return the health of a cluster by the description of one broker.

    The metadata of a broker before API version 7 have no age; they count as current if the broker
    knows a controller.
    """
    limit_ms, age_ms = cluster.metadata_age_max_ms, cluster.metadata_age_ms
    if limit_ms is not None and (age_ms is None or age_ms > limit_ms):
        reason = f"node {cluster.node_id} has no contact to a majority of the voters"
        return ClusterHealth(
            ClusterSeverity.UNAVAILABLE,
            reason,
            _step_to_majority(cluster),
            is_stale=True,
            unknown_for_ms=age_ms,
            writable_count=None,
            readable_count=None,
        )
    down = [node for node in cluster.nodes if _is_missed(node)]
    severity, findings = ClusterSeverity.UNAVAILABLE, _unavailable(cluster, down)
    if not findings:
        severity, findings = ClusterSeverity.DEGRADED, _degraded(cluster, down)
    if not findings:
        severity = ClusterSeverity.HEALTHY
    return ClusterHealth(
        severity,
        ", ".join(each.reason for each in findings),
        findings[0].next_step if findings else "",
        is_stale=False,
        unknown_for_ms=None,
        writable_count=last_writable_count(cluster),
        readable_count=last_readable_count(cluster),
    )


def last_writable_count(cluster: DescribeClusterReply) -> int:
    """Return the partitions that accept records with `acks="all"`, by the last known figures."""
    return cluster.partition_count - cluster.leaderless_count - cluster.unavailable_count


def last_readable_count(cluster: DescribeClusterReply) -> int:
    """Return the partitions that consumers can read, by the last known figures."""
    return cluster.partition_count - cluster.leaderless_count


class _Finding(NamedTuple):
    reason: str
    next_step: str


def _unavailable(cluster: DescribeClusterReply, down: Sequence[NodeDescription]) -> list[_Finding]:
    """Return the reasons why a part of the cluster cannot be used, by current metadata."""
    found: list[_Finding] = []
    total, step = cluster.partition_count, _step_for_partitions(down)
    if cluster.controller_id is None and cluster.metadata_age_max_ms is None:
        reason = f"node {cluster.node_id} knows no controller"
        found.append(_Finding(reason, _step_to_majority(cluster)))
    if cluster.leaderless_count:
        count = cluster.leaderless_count
        reason = f"{count:,} of {total:,} partitions can be neither written nor read"
        found.append(_Finding(reason, step))
    if cluster.unavailable_count:
        reason = f"{cluster.unavailable_count:,} of {total:,} partitions cannot be written"
        found.append(_Finding(reason, step))
    return found


def _degraded(cluster: DescribeClusterReply, down: Sequence[NodeDescription]) -> list[_Finding]:
    """Return what an administrator should look at while all partitions can be used."""
    found: list[_Finding] = []
    if cluster.controller_id is None:
        reason = "the cluster elects a controller"
        found.append(_Finding(reason, "repeat the command in a few seconds"))
    if down:
        reason = ", ".join(f"node {node.node_id} is {node.status}" for node in down)
        found.append(_Finding(reason, _step_to_start(down)))
    if cluster.under_replicated_count:
        count, total = cluster.under_replicated_count, cluster.partition_count
        reason = f"{count:,} of {total:,} partitions have replicas out of sync"
        step = "wait until the replicas catch up: tidelog cluster status --partitions"
        found.append(_Finding(reason, step))
    if cluster.damaged_count:
        reason = f"damaged replicas: {cluster.damaged_count:,}"
        found.append(_Finding(reason, "see what is damaged: tidelog cluster status --partitions"))
    if cluster.events:
        reason = f"events that are not acknowledged: {len(cluster.events):,}"
        found.append(_Finding(reason, "read and acknowledge them: tidelog cluster events"))
    return found


def _is_missed(node: NodeDescription) -> bool:
    """Return whether a node is not alive, and the cluster has less redundancy without it."""
    return node.status != "alive" and (node.role == "voter" or node.replica_count > 0)


def _step_to_start(nodes: Sequence[NodeDescription]) -> str:
    names = _joined([node.node_id for node in nodes], "and")
    return f"start {names}, or wait until {'it is' if len(nodes) == 1 else 'they are'} alive"


def _step_for_partitions(down: Sequence[NodeDescription]) -> str:
    """Return the step if partitions are unavailable although the voters have a majority."""
    if down:
        return f"{_step_to_start(down)}; see tidelog cluster status --partitions"
    return "see tidelog cluster status --partitions for the reasons and remedies"


def _step_to_majority(cluster: DescribeClusterReply) -> str:
    """Return the step if the contacted broker has no majority."""
    voters = [node.node_id for node in cluster.nodes if node.role == "voter"]
    others = [node_id for node_id in voters if node_id != cluster.node_id]
    majority = len(voters) // 2 + 1
    missing = majority - (len(voters) - len(others))
    if missing <= 0 or not others:
        return f"see the log of node {cluster.node_id}, which should be a majority by itself"
    which = _joined(others, "or") if missing == 1 else f"{missing} of {_joined(others, 'and')}"
    return (
        f"start {which}, or restore their connection to node {cluster.node_id}:"
        f" {majority} of {len(voters)} voters are needed for a majority"
    )


def _joined(node_ids: Sequence[int], word: str) -> str:
    """Return `node 2`, `node 2 or 3`, `nodes 2, 3 and 4`."""
    *first, last = map(str, node_ids)
    noun = "nodes" if first and word == "and" else "node"
    return f"{noun} {', '.join(first)} {word} {last}" if first else f"node {last}"
