"""The check of all alerts: reads cluster, queues and groups, in pages and batches.

Shell: sends requests to brokers. Only queues and groups with thresholds are counted.
"""

from collections.abc import Sequence
from typing import Final

import trio

from tidelog.client.admin import cluster as cluster_admin
from tidelog.client.admin import queues as queue_admin
from tidelog.client.admin.alerts import (
    AlertReport,
    DiskToCheck,
    GroupToCheck,
    alert_config,
    dead_letter_queue,
    report,
)
from tidelog.client.admin.cluster_health import cluster_health
from tidelog.client.admin.groups import list_groups
from tidelog.client.admin.metric_rates import MetricRates
from tidelog.client.admin.metrics import read_metrics
from tidelog.client.admin.names import list_names
from tidelog.client.admin.queue_counts import (
    DescribedQueue,
    MessageCounts,
    count_messages,
    described,
)
from tidelog.client.cluster.cluster_client import ClusterClient
from tidelog.wire.config.group_config import GROUP_SETTINGS
from tidelog.wire.errors import TidelogError, UnsupportedVersionError
from tidelog.wire.messages.cluster_admin import NodeDescription
from tidelog.wire.messages.division import divided
from tidelog.wire.messages.groups import DescribeGroupsRequest
from tidelog.wire.messages.queue_admin import QueueDescription
from tidelog.wire.protocol import api

_FAMILIES: Final = ("disk", "transactions")
_QUEUES_AT_ONCE: Final = 1_000
_GROUPS_AT_ONCE: Final = 100
_COUNT_S: Final = 30.0
"""Maximum seconds for the counts of all queues; the state of the others is unknown."""
_CONTROLLER_S: Final = 5.0
"""Maximum seconds for the answers of the controller; it knows groups."""


async def check_alerts(cluster: ClusterClient, owner: str | None, *, now_ms: int) -> AlertReport:
    """See `Admin.alerts`."""
    found = await cluster_admin.describe_cluster(cluster, with_partitions=False)
    groups: list[GroupToCheck] = []
    unknown: list[str] = []
    if not cluster_health(found).is_stale:
        try:
            with trio.fail_after(_CONTROLLER_S):
                groups = await _groups(cluster, owner)
        except (TidelogError, trio.TooSlowError):
            unknown.append("groups")
            # The controller may be gone for less time than its broker needs to notice.
            found = await cluster_admin.describe_cluster(cluster, with_partitions=False)
    of_operators = found if owner is None else None
    if cluster_health(found).is_stale:
        # Leaders do not answer, and only a controller with a majority knows groups.
        blind = ("cluster", "groups", "queues") if owner is None else ("groups", "queues")
        return report(of_operators, [], [], depths={}, unknown=blind, now_ms=now_ms)
    queues = await _queues(cluster, owner)
    counts = await count_messages(cluster, queues, within_s=_COUNT_S)
    counted = [described(queue, each) for queue, each in zip(queues, counts, strict=True)]
    depths = await _depths(cluster, counted)
    disks: list[DiskToCheck] = []
    name_count = 0
    if owner is None:
        disks, name_count, silent = await _metrics(cluster, found.nodes)
        unknown += silent
    return report(
        of_operators,
        counted,
        groups,
        disks=disks,
        name_count=name_count,
        depths=depths,
        unknown=unknown,
        now_ms=now_ms,
    )


async def _metrics(
    cluster: ClusterClient, nodes: Sequence[NodeDescription]
) -> tuple[list[DiskToCheck], int, list[str]]:
    """Return disks of live brokers, the number of transaction names, and brokers without answer.

    Brokers of earlier versions have no metrics; they are in neither list.
    """
    found: list[DiskToCheck] = []
    name_count = 0
    silent: list[str] = []
    alive = [node for node in nodes if node.status == "alive"]
    for broker in await read_metrics(cluster, alive, families=_FAMILIES, names=""):
        values = MetricRates(None, broker).values
        if broker.error is None:
            disk = DiskToCheck(
                broker.node_id,
                free_bytes=int(values("tidelog_disk_free_bytes").get((), 0)),
                size_bytes=int(values("tidelog_disk_size_bytes").get((), 0)),
                reserve_bytes=int(values("tidelog_disk_reserve_bytes").get((), 0)),
                full_log_count=int(values("tidelog_disk_full_logs").get((), 0)),
            )
            found.append(disk)
            # Only the active controller has this one.
            known = int(values("tidelog_transactions").get(("known",), 0))
            name_count = max(name_count, known)
        elif not isinstance(broker.error, UnsupportedVersionError):
            silent.append(f"node {broker.node_id}")
    return found, name_count, silent


async def _queues(cluster: ClusterClient, owner: str | None) -> list[QueueDescription]:
    """Return the queues with thresholds, of one owner or of all."""
    found: list[QueueDescription] = []
    names = await list_names(cluster, api.LIST_QUEUES, "", after="", limit=None)
    for part in divided(names, _QUEUES_AT_ONCE):
        for queue in await queue_admin.describe_existing_queues(cluster, part):
            config = alert_config(described(queue, None))
            if config is not None and owner in {None, config.owner}:
                found.append(queue)
    return found


async def _depths(
    cluster: ClusterClient, queues: Sequence[DescribedQueue]
) -> dict[str, MessageCounts | None]:
    """Return the counts of the dead-letter queues of queues with a threshold for dead letters."""
    depths: dict[str, MessageCounts | None] = {}
    known = {queue.name: queue.counts for queue in queues}
    wanted: dict[str, None] = {}
    for queue in queues:
        config, target = alert_config(queue), dead_letter_queue(queue)
        if config is not None and config.alert_dead_letters is not None and target is not None:
            if target in known:
                depths[target] = known[target]
            else:
                wanted[target] = None
    missing = await queue_admin.describe_existing_queues(cluster, list(wanted))
    counts = await count_messages(cluster, missing, within_s=_COUNT_S)
    return depths | {queue.name: found for queue, found in zip(missing, counts, strict=True)}


async def _groups(cluster: ClusterClient, owner: str | None) -> list[GroupToCheck]:
    """Return the groups with settings, of one owner or of all, with their lag."""
    default = GROUP_SETTINGS["owner"].default
    overrides = {
        each.group_id: each.overrides
        for each in await list_groups(cluster, None)
        if any(name != "owner" for name in each.overrides)
        and owner in {None, each.overrides.get("owner", default).strip()}
    }
    found: list[GroupToCheck] = []
    for part in divided(list(overrides), _GROUPS_AT_ONCE) if overrides else ():
        request = DescribeGroupsRequest(part)
        reply = await cluster.call_controller(api.DESCRIBE_GROUPS, request, is_repeatable=True)
        found += [
            GroupToCheck(overrides[each.group_id], each)
            for each in reply.groups
            if each.error is None
        ]
    return found
