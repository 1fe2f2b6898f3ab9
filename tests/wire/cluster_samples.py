"""Samples of messages about the whole cluster."""

from msgspec.structs import replace

from tests.wire.group_samples import TOPIC_ID
from tidelog.wire.errors import LeaderNotAvailableError
from tidelog.wire.messages.cluster_admin import (
    AcceptedLoss,
    AcknowledgeEventsReply,
    AcknowledgeEventsRequest,
    AlterClusterConfigReply,
    AlterClusterConfigRequest,
    BrokerSetting,
    DamagedReplica,
    DescribeClusterReply,
    DescribeClusterRequest,
    DescribeConfigReply,
    DescribeConfigRequest,
    ElectLeadersReply,
    ElectLeadersRequest,
    EventDescription,
    LeaderElected,
    LeaderlessPartitions,
    NodeDescription,
    PartitionAtRisk,
    PartitionState,
    SafeToStopReply,
    SafeToStopRequest,
    TopicToElect,
    UnregisterBrokerReply,
    UnregisterBrokerRequest,
)
from tidelog.wire.messages.features import (
    NodeFeatures,
    SupportedLevels,
    UpdateFeaturesReply,
    UpdateFeaturesRequest,
)
from tidelog.wire.messages.keys import (
    AlterKeysReply,
    AlterKeysRequest,
    BrokerKeys,
    ChangedKeys,
    DataKeyDescription,
    KeyAction,
    ListKeysReply,
    ListKeysRequest,
    TopicKeys,
)
from tidelog.wire.messages.reassignment import (
    DrainBrokerReply,
    DrainBrokerRequest,
    ListReassignmentsReply,
    ListReassignmentsRequest,
    PartitionMove,
    PartitionMoved,
    ReassignReply,
    ReassignRequest,
    ReplicaProgress,
)

_DESCRIBED = DescribeClusterReply(
    cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
    node_id=1,
    controller_id=2,
    term=7,
    nodes=[
        NodeDescription(
            node_id=1,
            host="10.0.0.1",
            port=8433,
            rack="rack-a",
            role="voter",
            status="alive",
            leader_count=5,
            replica_count=9,
        )
    ],
    partition_count=12,
    leaderless_count=1,
    unavailable_count=2,
    under_replicated_count=4,
    not_preferred_count=3,
    reassigning_count=6,
    data_losses=[
        AcceptedLoss(
            topic="orders",
            topic_id=TOPIC_ID,
            partition=3,
            leader_id=2,
            leader_epoch=9,
            last_known_leader=1,
            eligible_leader_replicas=[1, 4],
            accepted_at_ms=1_700_000_000_000,
        )
    ],
    partitions=[
        PartitionState(
            topic="orders",
            partition=3,
            leader_id=2,
            leader_epoch=9,
            replicas=[1, 2, 3],
            in_sync_replicas=[2],
            eligible_leader_replicas=[3],
            adding_replicas=[4],
            removing_replicas=[1],
            last_known_leader=5,
        )
    ],
)
_DESCRIBED_V2 = replace(
    _DESCRIBED,
    nodes=[replace(node, is_drained=True) for node in _DESCRIBED.nodes],
    config={"reassignment_max_bytes_per_second": "20MB"},
)
_DESCRIBED_V3 = replace(
    _DESCRIBED_V2,
    partitions=[
        replace(each, offline_replicas=[3], wiped_replicas=[1]) for each in _DESCRIBED_V2.partitions
    ],
)
_DESCRIBED_V4 = replace(
    _DESCRIBED_V3,
    nodes=[replace(node, clock_skew_ms=-45_000) for node in _DESCRIBED_V3.nodes],
    clock_skew_max_ms=30_000,
)
EVENT = EventDescription(
    event_id=7,
    at_ms=1_700_000_000_000,
    kind="records_lost",
    topic="orders",
    topic_id=TOPIC_ID,
    partition=3,
    node_id=1,
    leader_epoch=9,
    first_offset=585,
    end_offset=600,
    record_count=15,
    detail="broker 1 removed 15 committed records, which broker 2, the leader, lacks",
)
_REASON = "the log of broker 3 is offline after an error of the disk"
_DESCRIBED_V5 = replace(
    _DESCRIBED_V4,
    partitions=[
        replace(each, leaderless_kind="log_offline", leaderless_reason=_REASON)
        for each in _DESCRIBED_V4.partitions
    ],
    events=[EVENT],
    event_count=7,
    dropped_event_count=2,
    leaderless=[
        LeaderlessPartitions(
            kind="log_offline", partition_count=1, topic="orders", partition=3, reason=_REASON
        )
    ],
)
_DESCRIBED_V6 = replace(
    _DESCRIBED_V5,
    nodes=[replace(node, damaged_count=1) for node in _DESCRIBED_V5.nodes],
    partitions=[replace(each, damaged_replicas=[1]) for each in _DESCRIBED_V5.partitions],
    default_replication_factor=3,
    below_default_count=9,
    damaged_count=1,
    damaged=[DamagedReplica(topic="orders", partition=3, node_id=1)],
)
DESCRIBE = (
    DescribeClusterRequest(with_partitions=True),
    replace(
        _DESCRIBED_V6,
        nodes=[
            replace(node, status="unknown", last_known_status="alive")
            for node in _DESCRIBED_V6.nodes
        ],
        metadata_age_ms=45_000,
        metadata_age_max_ms=3000,
    ),
)
ACKNOWLEDGE_EVENTS = (
    AcknowledgeEventsRequest(event_ids=[3, 300], up_to_id=2),
    AcknowledgeEventsReply(unacknowledged_count=1),
)

ALTER_KEYS = (
    AlterKeysRequest(action=KeyAction.SHRED, topic="orders", key_ids=[1, 300]),
    AlterKeysReply(topics=[ChangedKeys(topic="orders", key_ids=[1, 300])]),
)
LIST_KEYS = (
    ListKeysRequest(topic="orders", is_local=True),
    ListKeysReply(
        topics=[
            TopicKeys(
                topic="orders",
                is_encrypted=True,
                keys=[
                    DataKeyDescription(
                        key_id=3, master_id="630dcd2966c43366", created_at_ms=1_700_000_000_000
                    )
                ],
            )
        ],
        brokers=[
            BrokerKeys(
                node_id=2,
                master_ids=["630dcd2966c43366"],
                locked_topics=["payments"],
                reason="data key 1 of the topic cannot be used",
            )
        ],
    ),
)

ELECT = (
    ElectLeadersRequest(
        topics=[TopicToElect(topic="orders", partitions=[3]), TopicToElect(topic="payments")],
        accept_data_loss=True,
    ),
    ElectLeadersReply(
        results=[
            LeaderElected(
                topic="orders",
                partition=3,
                previous_leader_id=None,
                leader_id=2,
                may_have_lost_data=True,
            ),
            LeaderElected(
                topic="payments",
                partition=0,
                previous_leader_id=None,
                leader_id=None,
                error=LeaderNotAvailableError("no replica of partition 0 is alive").to_wire(),
            ),
        ]
    ),
)

_REASSIGNED = ReassignRequest(
    moves=[PartitionMove(topic="orders", partition=3, replicas=[2, 3, 4])],
    leaving=[],
    max_replicas=100,
    plan_only=True,
)
_REASSIGNED_V2 = replace(_REASSIGNED, leaving=[5], replacement=6)
REASSIGN = (
    replace(_REASSIGNED_V2, replication_factor=3, topics=["orders"]),
    ReassignReply(
        results=[
            PartitionMoved(
                topic="orders",
                partition=3,
                replicas_before=[1, 2, 3],
                replicas=[2, 3, 4],
                is_under_way=True,
                error=None,
            )
        ]
    ),
)

ALTER = (
    AlterClusterConfigRequest(
        set_config={"reassignment_max_bytes_per_second": "20MB"},
        reset_config=["default_replication_factor"],
    ),
    AlterClusterConfigReply(
        config={"reassignment_max_bytes_per_second": "20MB", "default_replication_factor": "auto"},
    ),
)

DRAIN = (DrainBrokerRequest(node_id=3, is_drained=False), DrainBrokerReply(replica_count=12))

UNREGISTER = (UnregisterBrokerRequest(node_id=3), UnregisterBrokerReply(was_member=True))

FEATURES = (
    UpdateFeaturesRequest(level=1),
    UpdateFeaturesReply(
        level=0,
        newest_level=1,
        nodes=[NodeFeatures(1, SupportedLevels(0, 1)), NodeFeatures(2, None)],
        obstacles=["node 2 runs a version without feature levels; upgrade it"],
    ),
)

LIST_REASSIGNMENTS = (
    ListReassignmentsRequest(topics=["orders"]),
    ListReassignmentsReply(
        replicas=[
            ReplicaProgress(
                topic="orders",
                partition=3,
                node_id=4,
                record_count=1000,
                records_left=250,
                size_bytes=100_000,
                bytes_left=25_000,
                is_in_sync=True,
            )
        ]
    ),
)

IN_OLDER_VERSIONS: dict[str, object] = {
    "describe_cluster_reply_v1": _DESCRIBED,
    "describe_cluster_reply_v2": _DESCRIBED_V2,
    "describe_cluster_reply_v3": _DESCRIBED_V3,
    "describe_cluster_reply_v4": _DESCRIBED_V4,
    "describe_cluster_reply_v5": _DESCRIBED_V5,
    "describe_cluster_reply_v6": _DESCRIBED_V6,
    "reassign_request_v1": _REASSIGNED,
    "reassign_request_v2": _REASSIGNED_V2,
}
"""See `tests.wire.samples.IN_OLDER_VERSIONS`."""
DESCRIBE_CONFIG = (
    DescribeConfigRequest(),
    DescribeConfigReply(
        node_id=3,
        settings=[
            BrokerSetting("listen", "0.0.0.0:8433", "TIDELOG_LISTEN", False),
            BrokerSetting("scrub_max_bytes_per_second", "8388608", "broker", True),
        ],
    ),
)
SAFE_TO_STOP = (
    SafeToStopRequest(node_id=2),
    SafeToStopReply(
        node_id=2,
        is_safe=False,
        reasons=["partitions with too few in-sync replicas: 21, such as partition 3 of orders"],
        partition_count=21,
        partitions=[
            PartitionAtRisk(
                topic="orders", partition=3, remaining_in_sync=[1], min_insync_replicas=2
            )
        ],
        voters=[1, 2, 3],
        remaining_voters=[1, 3],
        metadata_age_ms=700,
    ),
)
