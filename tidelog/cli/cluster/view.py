"""The output of `tidelog cluster`, as text and JSON."""

from collections.abc import Sequence
from dataclasses import asdict as dataclass_fields
from datetime import UTC, datetime

import click
from msgspec.structs import asdict

from tidelog.cli.output.events import event_as_json, print_newest_events
from tidelog.cli.output.tables import counted, print_fields, print_table, size_text
from tidelog.cli.output.times import age_text
from tidelog.client.admin.cluster import MovingReplica
from tidelog.client.admin.cluster_health import (
    ClusterHealth,
    cluster_health,
    last_readable_count,
    last_writable_count,
)
from tidelog.wire.messages.cluster_admin import (
    AcceptedLoss,
    DescribeClusterReply,
    LeaderElected,
    NodeDescription,
    PartitionState,
    SafeToStopReply,
)
from tidelog.wire.messages.features import UpdateFeaturesReply as ClusterFeatures
from tidelog.wire.messages.keys import BrokerKeys

_ALL_HEALTHY = "all partitions are healthy"
_COUNTS = (
    "partition_count",
    "leaderless_count",
    "unavailable_count",
    "under_replicated_count",
    "not_preferred_count",
    "reassigning_count",
    "damaged_count",
)
"""Counts of a description that say nothing about the present while its metadata are stale."""
_NUMBERS = ("NODE", "LEADS", "REPLICAS", "DAMAGED", "PARTITION", "EPOCH", "LEADER", "BEFORE")


def cluster_as_json(
    cluster: DescribeClusterReply,
    moves: Sequence[MovingReplica] = (),
    locked: Sequence[BrokerKeys] = (),
    *,
    with_partitions: bool,
) -> dict[str, object]:
    """Return the description and health of a cluster, and the progress of added replicas.

    While the metadata of the contacted broker are stale, the counts of partitions are null, and
    `last_known` of the health has them.
    """
    found: dict[str, object] = asdict(cluster)
    health = cluster_health(cluster)
    found["health"] = {**dataclass_fields(health), "last_known": None}
    if health.is_stale:
        found["health"] = {
            **dataclass_fields(health),
            "last_known": {name: found[name] for name in _COUNTS},
        }
        found |= dict.fromkeys(_COUNTS)
    found["nodes"] = [asdict(node) for node in cluster.nodes]
    found["data_losses"] = [
        {**asdict(loss), "topic_id": loss.topic_id.hex()} for loss in cluster.data_losses
    ]
    found["events"] = [event_as_json(each) for each in cluster.events]
    found["leaderless"] = [asdict(each) for each in cluster.leaderless]
    found["damaged"] = [asdict(each) for each in cluster.damaged]
    found["moves"] = [_move_as_json(each) for each in moves]
    found["locked"] = [
        {"node_id": each.node_id, "topics": each.locked_topics, "reason": each.reason}
        for each in locked
    ]
    del found["partitions"]
    if with_partitions:
        found["partitions"] = [asdict(each) for each in cluster.partitions]
    return found


def elections_as_json(results: Sequence[LeaderElected]) -> list[dict[str, object]]:
    """Return the leader of each partition, or the error of its election."""
    return [
        {**asdict(each), "error": None if each.error is None else each.error.message}
        for each in results
    ]


def features_as_json(features: ClusterFeatures) -> dict[str, object]:
    """Return the feature levels of a cluster and its nodes."""
    nodes = [
        {"node_id": each.node_id, "supported": each.supported and asdict(each.supported)}
        for each in features.nodes
    ]
    return {**asdict(features), "nodes": nodes}


def print_cluster(
    cluster: DescribeClusterReply,
    moves: Sequence[MovingReplica] = (),
    locked: Sequence[BrokerKeys] = (),
    *,
    with_partitions: bool,
) -> None:
    """Print the nodes of a cluster, the health of its partitions, and brokers that lack keys."""
    leader = "unknown to the contacted node; a majority of the voters must be alive"
    if cluster.controller_id is not None:
        leader = f"node {cluster.controller_id} in term {cluster.term}"
    health = cluster_health(cluster)
    voters = [node for node in cluster.nodes if node.role == "voter"]
    print_fields(
        {
            "cluster": cluster.cluster_id,
            **_health_in_words(health),
            "controller": leader,
            "contacted": _contacted_in_words(cluster),
            "voters": f"{len(voters)}, majority {len(voters) // 2 + 1}",
            "available": _available_in_words(cluster, health),
            "partitions": _partitions_in_words(cluster, health),
            **({} if health.is_stale else _replicas_in_words(cluster)),
            **_clocks_in_words(cluster),
            **_locked_in_words(locked),
            **_events_in_words(cluster),
        }
    )
    click.echo()
    _print_nodes(cluster, health)
    if cluster.partitions:
        click.echo(f"\nunhealthy partitions, {_past(health)}:" if health.is_stale else "")
        _print_partitions(cluster.partitions)
    elif with_partitions:
        known = "no partition was unhealthy, as last known" if health.is_stale else _ALL_HEALTHY
        click.echo(f"\n{known}")
    _print_leaderless(cluster)
    _print_damaged(cluster)
    if moves:
        click.echo("\nreplicas that are being added:")
        _print_moves(moves)
    if cluster.data_losses:
        click.echo("\nelections with --accept-data-loss, which may have lost committed records:")
        _print_losses(cluster.data_losses)
    print_newest_events(cluster.events)


def print_elections(results: Sequence[LeaderElected]) -> None:
    """Print the leader of each partition, or the error of its election."""
    rows = [
        (
            each.topic,
            each.partition,
            each.previous_leader_id,
            each.leader_id,
            _outcome(each),
        )
        for each in results
    ]
    print_table(["TOPIC", "PARTITION", "BEFORE", "LEADER", "RESULT"], rows, right=_NUMBERS)


def print_features(features: ClusterFeatures) -> None:
    """Print the feature level of a cluster, those of its nodes, and what hinders a rise."""
    print_fields({"level": features.level, "newest": features.newest_level})
    click.echo()
    rows = [
        (
            each.node_id,
            "unknown"
            if each.supported is None
            else f"{each.supported.min_level} to {each.supported.max_level}",
        )
        for each in features.nodes
    ]
    print_table(["NODE", "LEVELS"], rows, right=_NUMBERS)
    if features.obstacles:
        click.echo(f"\nthe level cannot rise to {features.newest_level}:")
        for line in features.obstacles:
            click.echo(f"  {line}")
    elif features.level < features.newest_level:
        click.echo("\nall nodes support the newest level: tidelog cluster features --upgrade")


def _outcome(result: LeaderElected) -> str:
    if result.error is not None:
        return result.error.message
    if result.may_have_lost_data:
        return "elected; committed records may be lost"
    return "already the leader" if result.leader_id == result.previous_leader_id else "elected"


def health_line(cluster: DescribeClusterReply) -> str:
    """Return the health of a cluster in one line, with the next step."""
    health = cluster_health(cluster)
    parts = [_severity_in_words(health), f"asked node {cluster.node_id}", health.next_step]
    return "; ".join(part for part in parts if part)


def _severity_in_words(health: ClusterHealth) -> str:
    if not health.reason:
        return health.severity
    words = f"{health.severity}: {health.reason}"
    if not health.is_stale:
        return words
    age_ms = health.unknown_for_ms
    return f"{words} {'since its start' if age_ms is None else f'for {age_text(age_ms)}'}"


def _health_in_words(health: ClusterHealth) -> dict[str, str]:
    fields = {"health": _severity_in_words(health)}
    return fields | {"next step": health.next_step} if health.next_step else fields


def _contacted_in_words(cluster: DescribeClusterReply) -> str:
    name, age_ms = f"node {cluster.node_id}", cluster.metadata_age_ms
    if age_ms is not None:
        return f"{name}, with metadata of {_age_in_words(age_ms)} ago"
    if cluster.metadata_age_max_ms is None:
        return f"{name}, with metadata of unknown age"
    return f"{name}, with metadata from before its start"


def _age_in_words(age_ms: int) -> str:
    return "less than 1 s" if age_ms < 1000 else age_text(age_ms)  # noqa: PLR2004  (milliseconds)


def _unknown(health: ClusterHealth) -> str:
    """Return the words for a value that stale metadata do not tell."""
    age_ms = health.unknown_for_ms
    return "unknown" if age_ms is None else f"unknown for {age_text(age_ms)}"


def _past(health: ClusterHealth) -> str:
    age_ms = health.unknown_for_ms
    return "as last known" if age_ms is None else f"as known {age_text(age_ms)} ago"


def _available_in_words(cluster: DescribeClusterReply, health: ClusterHealth) -> str:
    total = cluster.partition_count
    words = (
        f"{last_writable_count(cluster):,} of {total:,} to write,"
        f" {last_readable_count(cluster):,} of {total:,} to read"
    )
    return f"{_unknown(health)}; was {words}" if health.is_stale else words


def _partitions_in_words(cluster: DescribeClusterReply, health: ClusterHealth) -> str:
    counts = {
        "without a leader": cluster.leaderless_count,
        "below min_insync_replicas": cluster.unavailable_count,
        "with replicas out of sync": cluster.under_replicated_count,
        "without their preferred leader": cluster.not_preferred_count,
        "being moved": cluster.reassigning_count,
    }
    words = [f"{count:,} {words}" for words, count in counts.items() if count]
    if cluster.damaged_count:
        words.append(counted(cluster.damaged_count, "damaged replica"))
    known = f"{cluster.partition_count:,}: {', '.join(words) or 'all healthy'}"
    return f"{_unknown(health)}; was {known}" if health.is_stale else known


def _replicas_in_words(cluster: DescribeClusterReply) -> dict[str, str]:
    """Return a field about topics with fewer replicas than new topics, if there are any."""
    factor = cluster.default_replication_factor
    if factor is None or not cluster.below_default_count:
        return {}
    return {
        "replicas": f"{counted(cluster.below_default_count, 'topic')} with fewer than new topics"
        f" get ({factor}): tidelog topic alter --all --replication-factor {factor}"
    }


def _clocks_in_words(cluster: DescribeClusterReply) -> dict[str, str]:
    """Return a field about clocks, if one of them is wrong."""
    limit_ms = cluster.clock_skew_max_ms
    if limit_ms is None:
        return {}
    skews = {node.node_id: node.clock_skew_ms for node in cluster.nodes if node.status == "alive"}
    known = {node_id: skew_ms for node_id, skew_ms in skews.items() if skew_ms is not None}
    if skews and not known:
        return {"clocks": "no majority agrees on the time; nothing is deleted by time"}
    wrong = [
        f"node {node_id} is {abs(skew_ms) / 1000:,.0f} s {'ahead' if skew_ms > 0 else 'behind'}"
        for node_id, skew_ms in known.items()
        if abs(skew_ms) > limit_ms
    ]
    return {"clocks": f"{', '.join(wrong)}; it deletes nothing by time"} if wrong else {}


def _locked_in_words(locked: Sequence[BrokerKeys]) -> dict[str, str]:
    """Return a field about brokers that cannot use data keys, if there are any."""
    words = [
        f"node {each.node_id} can neither read nor write"
        f" {counted(len(each.locked_topics), 'topic')}"
        for each in locked
    ]
    return {"encryption": f"{', '.join(words)}: tidelog key list"} if words else {}


def _events_in_words(cluster: DescribeClusterReply) -> dict[str, str]:
    """Return a field with the counts of events; none if the cluster never had an event."""
    if not cluster.event_count:
        return {}
    words = f"{len(cluster.events):,} not acknowledged, {cluster.event_count:,} in all"
    if cluster.dropped_event_count:
        words += f", {cluster.dropped_event_count:,} dropped unacknowledged"
    return {"events": words}


def _print_leaderless(cluster: DescribeClusterReply) -> None:
    """Print why partitions have no leader: each listed partition, else one for each reason."""
    lines = [
        f"  {each.topic}/{each.partition}: {each.leaderless_reason}"
        for each in cluster.partitions
        if each.leaderless_reason
    ] or [
        f"  {counted(each.partition_count, 'partition')}, first"
        f" {each.topic}/{each.partition}: {each.reason}"
        for each in cluster.leaderless
    ]
    if lines:
        click.echo("\nwhy partitions have no leader:")
    for line in lines:
        click.echo(line)


def _print_damaged(cluster: DescribeClusterReply) -> None:
    """Print the damaged replicas, and how many are not named."""
    if not cluster.damaged_count:
        return
    click.echo("\ndamaged replicas, each repaired once another replica has the records:")
    for each in cluster.damaged:
        click.echo(f"  {each.topic}/{each.partition} on node {each.node_id}")
    rest = cluster.damaged_count - len(cluster.damaged)
    if rest > 0:
        click.echo(f"  and {counted(rest, 'more replica')}")


def _status_in_words(node: NodeDescription, health: ClusterHealth) -> str:
    status = node.status
    if node.last_known_status:
        status = f"{_unknown(health)}; was {node.last_known_status}"
    return f"{status}, drained" if node.is_drained else status


def _print_nodes(cluster: DescribeClusterReply, health: ClusterHealth) -> None:
    rows = [
        (
            node.node_id,
            f"{node.host}:{node.port}" if node.host else None,
            node.rack or None,
            "leader" if node.node_id == cluster.controller_id else node.role,
            _status_in_words(node, health),
            node.leader_count,
            node.replica_count,
            node.damaged_count,
        )
        for node in cluster.nodes
    ]
    columns = ["NODE", "ADDRESS", "RACK", "ROLE", "STATUS", "LEADS", "REPLICAS"]
    columns += ["DAMAGED"] if cluster.damaged_count else []
    print_table(columns, [row[: len(columns)] for row in rows], right=_NUMBERS)


def _print_partitions(partitions: Sequence[PartitionState]) -> None:
    rows = [
        (
            each.topic,
            each.partition,
            each.leader_id,
            each.leader_epoch,
            _nodes(each.replicas),
            _nodes(each.in_sync_replicas) or None,
            _nodes(each.eligible_leader_replicas) or None,
            _nodes(each.adding_replicas) or None,
            _nodes(each.removing_replicas) or None,
            _nodes(each.offline_replicas) or None,
            _nodes(each.wiped_replicas) or None,
            _nodes(each.damaged_replicas) or None,
        )
        for each in partitions
    ]
    columns = ["TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "IN SYNC"]
    columns += _SELDOM
    kept = [
        place
        for place, title in enumerate(columns)
        if title not in _SELDOM or any(row[place] is not None for row in rows)
    ]
    print_table(
        [columns[place] for place in kept],
        [[row[place] for place in kept] for row in rows],
        right=("PARTITION", "LEADER", "EPOCH"),
    )


_SELDOM = ["ELIGIBLE", "ADDING", "REMOVING", "OFFLINE", "LOST FILES", "DAMAGED"]
"""Columns that are omitted when they are empty."""


def _move_as_json(move: MovingReplica) -> dict[str, object]:
    found: dict[str, object] = {
        "topic": move.topic,
        "partition": move.partition,
        "node_id": move.node_id,
        "leader_id": move.leader_id,
    }
    fields = ("record_count", "records_left", "size_bytes", "bytes_left", "is_in_sync")
    return found | {name: getattr(move.progress, name, None) for name in fields}


def _print_moves(moves: Sequence[MovingReplica]) -> None:
    rows = [
        (each.topic, each.partition, each.leader_id, each.node_id, *_left(each)) for each in moves
    ]
    columns = ["TOPIC", "PARTITION", "FROM", "TO", "DONE", "LEFT", "RECORDS LEFT"]
    print_table(columns, rows, right=columns[1:])


def _left(move: MovingReplica) -> tuple[str | None, str | None, int | None]:
    """Return the progress of a replica; return `None` for each unknown value."""
    known = move.progress
    if known is None:
        return None, None, None
    done = 100 if known.is_in_sync else 99
    if known.size_bytes:
        done = min(100 * (known.size_bytes - known.bytes_left) // known.size_bytes, done)
    return f"{done}%", size_text(known.bytes_left), known.records_left


def _print_losses(losses: Sequence[AcceptedLoss]) -> None:
    rows = [
        (
            datetime.fromtimestamp(loss.accepted_at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S"),
            loss.topic or loss.topic_id.hex(),
            loss.partition,
            loss.leader_id,
            loss.leader_epoch,
            loss.last_known_leader,
            _nodes(loss.eligible_leader_replicas) or None,
        )
        for loss in losses
    ]
    columns = ["TIME (UTC)", "TOPIC", "PARTITION", "LEADER", "EPOCH", "BEFORE", "EXCLUDED"]
    print_table(columns, rows, right=_NUMBERS)


def print_stop_check(found: SafeToStopReply) -> None:
    """Print whether a node may stop, and the partitions that it would make unavailable."""
    if found.is_safe:
        click.echo(f"node {found.node_id} may stop: it is not needed now")
        return
    click.echo(f"node {found.node_id} must not stop:")
    for reason in found.reasons:
        click.echo(f"  {reason}")
    if found.partitions:
        rows = [
            (
                each.topic,
                each.partition,
                _nodes(each.remaining_in_sync) or None,
                each.min_insync_replicas,
            )
            for each in found.partitions
        ]
        click.echo()
        print_table(
            ["TOPIC", "PARTITION", "LEFT IN SYNC", "NEEDED"], rows, right=("PARTITION", "NEEDED")
        )
        if found.partition_count > len(rows):
            click.echo(f"... and {found.partition_count - len(rows)} more")


def _nodes(node_ids: Sequence[int]) -> str:
    return ",".join(map(str, node_ids))
