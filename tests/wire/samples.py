"""One instance of every message, with every field different from its default."""

from typing import NamedTuple, TypeVar, cast

import msgspec

from tests.wire import (
    access_key_samples,
    access_samples,
    certificate_samples,
    cluster_samples,
    group_samples,
    message_samples,
    metric_samples,
    queue_samples,
    quota_samples,
    redrive_samples,
    replication_samples,
    topic_samples,
    transaction_samples,
    user_samples,
)
from tests.wire.group_samples import OTHER_TOPIC_ID, TOPIC_ID
from tidelog.wire.errors import CorruptBatchError, OffsetOutOfRangeError
from tidelog.wire.messages.cluster import (
    BrokerHeartbeatReply,
    BrokerHeartbeatRequest,
    ClockSkew,
    DamagedPartition,
    DamagedReplicas,
    ForwardCommandReply,
    ForwardCommandRequest,
    JoinReply,
    JoinRequest,
    KnownDirectory,
    Peer,
    PeerStatusReply,
    PeerStatusRequest,
    RaftReply,
    RaftRequest,
    RaftSnapshotReply,
    RaftSnapshotRequest,
)
from tidelog.wire.messages.features import SupportedLevels
from tidelog.wire.messages.fetch import (
    FetchReply,
    FetchRequest,
    PartitionFetch,
    PartitionFetched,
)
from tidelog.wire.messages.handshake import (
    ApiVersions,
    AuthenticateReply,
    AuthenticateRequest,
    HelloReply,
    HelloRequest,
    ProveNodeReply,
    ProveNodeRequest,
)
from tidelog.wire.messages.metadata import (
    BrokerAddress,
    MetadataReply,
    MetadataRequest,
    PartitionMetadata,
    TopicMetadata,
)
from tidelog.wire.messages.offset_ranges import (
    ListOffsetsReply,
    ListOffsetsRequest,
    OffsetQuery,
    PartitionOffsets,
    TopicOffsets,
)
from tidelog.wire.messages.produce import (
    AckLevel,
    Acks,
    InitProducerReply,
    InitProducerRequest,
    PartitionAppended,
    PartitionBatch,
    ProduceReply,
    ProduceRequest,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi, Api

CORRELATION_ID = 0x0102_0304
VERSION = 1

_Request = TypeVar("_Request")
_Reply = TypeVar("_Reply")


class Exchange(NamedTuple):
    """One API with a request and a reply."""

    api: AnyApi
    request: object
    reply: object

    @property
    def name(self) -> str:
        return self.api.key.name.lower()


def _exchange(api_: Api[_Request, _Reply], request: _Request, reply: _Reply) -> Exchange:
    return Exchange(cast("AnyApi", api_), request, reply)


CORRUPT_BATCH = CorruptBatchError("the payload of the batch does not match its CRC-32C").to_wire()
OUT_OF_RANGE = OffsetOutOfRangeError(
    "offset 7 is not in the log: it starts at 10 and ends at 20",
    log_start_offset=10,
    log_end_offset=20,
).to_wire()

_GONE = TopicMetadata(name="gone", topic_id=b"", partitions=[], error=OUT_OF_RANGE)
METADATA_TOPICS = [
    TopicMetadata(
        name="orders",
        topic_id=TOPIC_ID,
        partitions=[
            PartitionMetadata(partition=0, leader_id=1, leader_epoch=7, in_sync_replicas=[1, 2])
        ],
    ),
    _GONE,
]
METADATA_TOPICS_V2 = [
    TopicMetadata(
        name="orders",
        topic_id=TOPIC_ID,
        partitions=[PartitionMetadata(partition=0, leader_id=1, leader_epoch=7)],
    ),
    _GONE,
]

FETCH_REQUEST_V1 = FetchRequest(
    max_wait_ms=500,
    min_bytes=1,
    max_bytes=1 << 20,
    partitions=[
        PartitionFetch(topic_id=TOPIC_ID, partition=3, fetch_offset=1000, max_bytes=1 << 18),
        PartitionFetch(topic_id=OTHER_TOPIC_ID, partition=0, fetch_offset=7, max_bytes=1 << 18),
    ],
)
FETCH_REQUEST_V2 = msgspec.structs.replace(
    FETCH_REQUEST_V1,
    partitions=[
        msgspec.structs.replace(each, from_follower=True) for each in FETCH_REQUEST_V1.partitions
    ],
)
FETCH_REQUEST_V3 = msgspec.structs.replace(FETCH_REQUEST_V2, from_journals=True)
FETCH_REQUEST_V4 = msgspec.structs.replace(
    FETCH_REQUEST_V3,
    partitions=[
        msgspec.structs.replace(each, last_fetched_epoch=epoch)
        for each, epoch in zip(FETCH_REQUEST_V3.partitions, (4, None), strict=True)
    ],
)
LIST_OFFSETS_REQUEST_V1 = ListOffsetsRequest(
    partitions=[
        OffsetQuery(topic_id=TOPIC_ID, partition=3),
        OffsetQuery(topic_id=TOPIC_ID, partition=3, at_offset=1000),
        OffsetQuery(topic_id=TOPIC_ID, partition=3, at_timestamp_ms=1_700_000_000_000),
    ],
    topics=["orders"],
    with_sizes=True,
    from_journals=True,
    cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
)
LIST_OFFSETS_REPLY_V1 = ListOffsetsReply(
    partitions=[
        PartitionOffsets(log_start_offset=10, high_watermark=1019, log_end_offset=1020),
        PartitionOffsets(
            log_start_offset=10,
            high_watermark=1019,
            log_end_offset=1020,
            has_caught_up=False,
            offset=1000,
            timestamp_ms=1_700_000_000_005,
        ),
        PartitionOffsets(0, 0, 0, error=CORRUPT_BATCH),
    ],
    topics=[TopicOffsets("orders", TOPIC_ID, [10, 0], [19, 0], [4096, 0], [1])],
)

HEARTBEAT_REQUEST_V3 = BrokerHeartbeatRequest(
    cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
    node_id=2,
    broker_epoch=17,
    is_caught_up=True,
    wants_to_stop=True,
    applied_index=299,
    directory_epoch=16,
    wall_ms=1_700_000_000_123,
)
HEARTBEAT_REQUEST_V4 = msgspec.structs.replace(
    HEARTBEAT_REQUEST_V3, supported_levels=SupportedLevels(0, 1)
)
DAMAGED = DamagedReplicas(
    node_id=2, count=30, partitions=[DamagedPartition(topic_id=TOPIC_ID, partition=3)]
)
HEARTBEAT_REPLY_V3 = BrokerHeartbeatReply(
    is_fenced=True,
    may_stop=True,
    metadata_index=300,
    is_counted=False,
    agreed_ms=1_700_000_000_120,
    clock_skews=[ClockSkew(node_id=1, skew_ms=0), ClockSkew(node_id=2, skew_ms=3)],
    controller_ms=1_700_000_000_121,
)
HEARTBEAT_REQUEST_V5 = msgspec.structs.replace(HEARTBEAT_REQUEST_V4, damaged=DAMAGED)
HEARTBEAT_REPLY_V5 = msgspec.structs.replace(HEARTBEAT_REPLY_V3, damaged=[DAMAGED])
JOIN_REQUEST_V1 = JoinRequest(
    cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
    peer=Peer(node_id=2, disk_id=b"a disk of node 2"),
    host="10.0.0.2",
    port=8433,
    is_passed_on=True,
)
JOIN_REPLY_V1 = JoinReply(leader_id=1, host="10.0.0.1", port=8433)

EXCHANGES = [
    _exchange(
        api.HELLO,
        HelloRequest(client_id="example", client_version="1.2.3"),
        HelloReply(
            broker_version="0.1.0",
            cluster_id="c0ffee",
            node_id=1,
            apis=[ApiVersions(api_key=0, min_version=1, max_version=1), ApiVersions(8, 1, 2)],
            max_frame_bytes=16 << 20,
            max_in_flight_requests_per_connection=64,
        ),
    ),
    _exchange(
        api.METADATA,
        MetadataRequest(topics=["orders", "gone"]),
        MetadataReply(
            cluster_id="c0ffee",
            brokers=[BrokerAddress(node_id=1, host="127.0.0.1", port=8433, rack="rack-a")],
            topics=METADATA_TOPICS,
            controller_id=3,
            batch_format=2,
        ),
    ),
    _exchange(api.CREATE_TOPIC, *topic_samples.CREATE),
    _exchange(api.DESCRIBE_TOPICS, *topic_samples.DESCRIBE),
    _exchange(api.ALTER_TOPIC, *topic_samples.ALTER),
    _exchange(api.DELETE_TOPIC, *topic_samples.DELETE),
    _exchange(api.DELETE_RECORDS, *topic_samples.DELETE_RECORDS),
    _exchange(
        api.INIT_PRODUCER,
        InitProducerRequest(producer_id=42, producer_epoch=3),
        InitProducerReply(producer_id=42, producer_epoch=4),
    ),
    _exchange(
        api.PRODUCE,
        ProduceRequest(
            acks=Acks.ALL,
            timeout_ms=30_000,
            batches=[PartitionBatch(topic_id=TOPIC_ID, partition=3, batch_bytes=145)],
        ),
        ProduceReply(
            results=[
                PartitionAppended(
                    base_offset=1000, ack_level=AckLevel.DURABLE, log_start_offset=10
                ),
                PartitionAppended(
                    base_offset=0, ack_level=0, log_start_offset=0, error=CORRUPT_BATCH
                ),
            ]
        ),
    ),
    _exchange(
        api.FETCH,
        FETCH_REQUEST_V4,
        FetchReply(
            results=[
                PartitionFetched(batch_bytes=145, high_watermark=1003, log_start_offset=10),
                PartitionFetched(
                    batch_bytes=0, high_watermark=20, log_start_offset=10, error=OUT_OF_RANGE
                ),
            ]
        ),
    ),
    _exchange(
        api.LIST_OFFSETS,
        msgspec.structs.replace(LIST_OFFSETS_REQUEST_V1, with_leader_epochs=True),
        msgspec.structs.replace(
            LIST_OFFSETS_REPLY_V1,
            topics=[
                msgspec.structs.replace(each, leader_epochs=[4, None])
                for each in LIST_OFFSETS_REPLY_V1.topics
            ],
        ),
    ),
    _exchange(api.GROUP_HEARTBEAT, *group_samples.BROKER_HEARTBEAT),
    _exchange(api.COMMIT_OFFSETS, *group_samples.COMMIT),
    _exchange(api.FETCH_OFFSETS, *group_samples.FETCH_OFFSETS),
    _exchange(api.LIST_GROUPS, *group_samples.LIST),
    _exchange(api.DESCRIBE_GROUPS, *group_samples.DESCRIBE),
    _exchange(api.RESET_OFFSETS, *group_samples.RESET),
    _exchange(api.DELETE_GROUP, *group_samples.DELETE),
    _exchange(api.ADD_PARTITIONS, *topic_samples.ADD_PARTITIONS),
    _exchange(
        api.PEER_STATUS,
        PeerStatusRequest(node_id=2),
        PeerStatusReply(
            peer=Peer(node_id=1, disk_id=b"a disk of node 1"),
            peer_ids=[1, 2, 3],
            cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
            first_voters=[
                Peer(node_id=1, disk_id=b"a disk of node 1"),
                Peer(node_id=2, disk_id=b"a disk of node 2"),
            ],
            directories=[KnownDirectory(node_id=2, disk_id="a disk", directory_epoch=17)],
            is_leading=True,
        ),
    ),
    _exchange(
        api.RAFT,
        RaftRequest(
            cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
            messages=[b"first", b"second"],
            is_answered=False,
        ),
        RaftReply(node_id=1),
    ),
    _exchange(
        api.RAFT_SNAPSHOT,
        RaftSnapshotRequest(
            cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
            message=b"an offer",
            position=262_144,
            total_bytes=300_000,
        ),
        RaftSnapshotReply(received_bytes=300_000),
    ),
    _exchange(
        api.FORWARD_COMMAND,
        ForwardCommandRequest(cluster_id="5f3a9c1e7b2d4f60a8c1e3d5", command=b"a command"),
        ForwardCommandReply(reply=b"an answer", index=1234),
    ),
    _exchange(
        api.BROKER_HEARTBEAT,
        msgspec.structs.replace(HEARTBEAT_REQUEST_V5, quota_use=[quota_samples.USE]),
        msgspec.structs.replace(HEARTBEAT_REPLY_V5, quota_shares=[quota_samples.SHARE]),
    ),
    _exchange(api.REPLICA_FETCH, *replication_samples.FETCH),
    _exchange(api.REPLICA_DURABLE, *replication_samples.DURABLE),
    _exchange(api.REPLICA_READ, *replication_samples.READ),
    _exchange(api.TOPIC_USAGE, *topic_samples.USAGE),
    _exchange(
        api.JOIN,
        msgspec.structs.replace(JOIN_REQUEST_V1, supported_levels=SupportedLevels(0, 1)),
        JOIN_REPLY_V1,
    ),
    _exchange(api.DESCRIBE_CLUSTER, *cluster_samples.DESCRIBE),
    _exchange(api.ELECT_LEADERS, *cluster_samples.ELECT),
    _exchange(api.REASSIGN, *cluster_samples.REASSIGN),
    _exchange(api.ALTER_CLUSTER_CONFIG, *cluster_samples.ALTER),
    _exchange(api.LIST_REASSIGNMENTS, *cluster_samples.LIST_REASSIGNMENTS),
    _exchange(api.DRAIN_BROKER, *cluster_samples.DRAIN),
    _exchange(api.UNREGISTER_BROKER, *cluster_samples.UNREGISTER),
    _exchange(api.DESCRIBE_CONFIG, *cluster_samples.DESCRIBE_CONFIG),
    _exchange(api.ACKNOWLEDGE_EVENTS, *cluster_samples.ACKNOWLEDGE_EVENTS),
    _exchange(api.CREATE_QUEUE, *queue_samples.CREATE),
    _exchange(api.DESCRIBE_QUEUES, *queue_samples.DESCRIBE),
    _exchange(api.ALTER_QUEUE, *queue_samples.ALTER),
    _exchange(api.DELETE_QUEUE, *queue_samples.DELETE),
    _exchange(api.SEND, *message_samples.SEND),
    _exchange(api.RECEIVE, *message_samples.RECEIVE),
    _exchange(api.SETTLE, *message_samples.SETTLE),
    _exchange(api.PEEK, *message_samples.PEEK),
    _exchange(api.COUNT_MESSAGES, *message_samples.COUNT),
    _exchange(api.PURGE, *message_samples.PURGE),
    _exchange(api.QUEUE_SEEK, *message_samples.SEEK),
    _exchange(api.REDRIVE, *message_samples.REDRIVE),
    _exchange(api.GET_PURGE_OFFSET, *message_samples.GET_PURGE_OFFSET),
    _exchange(api.CANCEL_SCHEDULED, *message_samples.CANCEL_SCHEDULED),
    _exchange(api.DESCRIBE_REDRIVE, *redrive_samples.DESCRIBE_REDRIVE),
    _exchange(api.DESCRIBE_PRODUCER, *redrive_samples.DESCRIBE_PRODUCER),
    _exchange(api.BEGIN_TRANSACTION, *transaction_samples.BEGIN),
    _exchange(api.STAGE, *transaction_samples.STAGE),
    _exchange(api.COMMIT_TRANSACTION, *transaction_samples.COMMIT),
    _exchange(api.ABORT_TRANSACTION, *transaction_samples.ABORT),
    _exchange(api.LIST_TRANSACTIONS, *transaction_samples.LIST),
    _exchange(
        api.PROVE_NODE,
        ProveNodeRequest(node_id=2, nonce=b"nonce of the asking node", proof=b"a proof"),
        ProveNodeReply(node_id=1, nonce=b"nonce of the answering node", proof=b"its proof"),
    ),
    _exchange(api.UPDATE_FEATURES, *cluster_samples.FEATURES),
    _exchange(api.LIST_TOPICS, *topic_samples.LIST),
    _exchange(api.LIST_QUEUES, *queue_samples.LIST),
    _exchange(api.HOT_KEYS, *topic_samples.HOT_KEYS),
    _exchange(api.ALTER_GROUP, *group_samples.ALTER),
    _exchange(api.SAFE_TO_STOP, *cluster_samples.SAFE_TO_STOP),
    _exchange(api.READ_METRICS, *metric_samples.READ),
    _exchange(
        api.AUTHENTICATE,
        AuthenticateRequest("SCRAM-SHA-256", b"n,,n=alice,r=a nonce"),
        AuthenticateReply(b"v=a signature", True, "user:alice", 1_700_000_000_000, 3_600_000),
    ),
    _exchange(api.ALTER_USERS, *user_samples.ALTER_USERS),
    _exchange(api.LIST_USERS, *user_samples.LIST_USERS),
    _exchange(api.ALTER_ACCESS, *access_samples.ALTER_ACCESS),
    _exchange(api.LIST_ACCESS, *access_samples.LIST_ACCESS),
    _exchange(api.EXPLAIN_ACCESS, *access_samples.EXPLAIN_ACCESS),
    _exchange(api.ALTER_QUOTAS, *quota_samples.ALTER),
    _exchange(api.LIST_QUOTAS, *quota_samples.LIST),
    _exchange(api.ALTER_KEYS, *cluster_samples.ALTER_KEYS),
    _exchange(api.LIST_KEYS, *cluster_samples.LIST_KEYS),
    _exchange(api.LIST_CERTIFICATES, *certificate_samples.LIST),
    _exchange(api.AWAIT_METADATA, *access_samples.AWAIT_METADATA),
    _exchange(api.CREATE_QUEUES, *queue_samples.CREATE_MANY),
    _exchange(api.AWAIT_APPENDED, *transaction_samples.AWAIT_APPENDED),
    _exchange(api.FORGET_TRANSACTIONS, *transaction_samples.FORGET),
    _exchange(api.ALTER_ACCESS_KEYS, *access_key_samples.ALTER_ACCESS_KEYS),
    _exchange(api.LIST_ACCESS_KEYS, *access_key_samples.LIST_ACCESS_KEYS),
    _exchange(api.GET_SIGNING_KEY, *access_key_samples.GET_SIGNING_KEY),
    _exchange(api.IMPERSONATE, *access_key_samples.IMPERSONATE),
    _exchange(api.END_RECEIVES, *message_samples.END_RECEIVES),
]

IN_OLDER_VERSIONS: dict[str, object] = {
    **cluster_samples.IN_OLDER_VERSIONS,
    **group_samples.IN_OLDER_VERSIONS,
    **message_samples.IN_OLDER_VERSIONS,
    **queue_samples.IN_OLDER_VERSIONS,
    **redrive_samples.IN_OLDER_VERSIONS,
    **topic_samples.IN_OLDER_VERSIONS,
    **transaction_samples.IN_OLDER_VERSIONS,
    "metadata_reply_v1": MetadataReply(
        cluster_id="c0ffee",
        brokers=[BrokerAddress(node_id=1, host="127.0.0.1", port=8433)],
        topics=METADATA_TOPICS_V2,
    ),
    "metadata_reply_v2": MetadataReply(
        cluster_id="c0ffee",
        brokers=[BrokerAddress(node_id=1, host="127.0.0.1", port=8433)],
        topics=METADATA_TOPICS_V2,
        controller_id=3,
    ),
    "metadata_reply_v3": MetadataReply(
        cluster_id="c0ffee",
        brokers=[BrokerAddress(node_id=1, host="127.0.0.1", port=8433, rack="rack-a")],
        topics=METADATA_TOPICS,
        controller_id=3,
    ),
    "fetch_request_v1": FETCH_REQUEST_V1,
    "fetch_request_v2": FETCH_REQUEST_V2,
    "fetch_request_v3": FETCH_REQUEST_V3,
    "list_offsets_request_v1": LIST_OFFSETS_REQUEST_V1,
    "list_offsets_reply_v1": LIST_OFFSETS_REPLY_V1,
    "replica_fetch_request_v1": replication_samples.FETCH_V1,
    "replica_fetch_request_v2": replication_samples.FETCH_V2,
    "replica_fetch_request_v3": replication_samples.FETCH_V3,
    "broker_heartbeat_request_v1": BrokerHeartbeatRequest(
        cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
        node_id=2,
        broker_epoch=17,
        is_caught_up=True,
        wants_to_stop=True,
    ),
    "peer_status_reply_v1": PeerStatusReply(
        peer=Peer(node_id=1, disk_id=b"a disk of node 1"),
        peer_ids=[1, 2, 3],
        cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
        first_voters=[
            Peer(node_id=1, disk_id=b"a disk of node 1"),
            Peer(node_id=2, disk_id=b"a disk of node 2"),
        ],
    ),
    "broker_heartbeat_reply_v1": BrokerHeartbeatReply(
        is_fenced=True, may_stop=True, metadata_index=300
    ),
    "broker_heartbeat_request_v2": BrokerHeartbeatRequest(
        cluster_id="5f3a9c1e7b2d4f60a8c1e3d5",
        node_id=2,
        broker_epoch=17,
        is_caught_up=True,
        wants_to_stop=True,
        applied_index=299,
    ),
    "broker_heartbeat_reply_v2": BrokerHeartbeatReply(
        is_fenced=True, may_stop=True, metadata_index=300, is_counted=False
    ),
    "broker_heartbeat_request_v3": HEARTBEAT_REQUEST_V3,
    "broker_heartbeat_request_v4": HEARTBEAT_REQUEST_V4,
    "broker_heartbeat_reply_v3": HEARTBEAT_REPLY_V3,
    "broker_heartbeat_reply_v4": HEARTBEAT_REPLY_V3,
    "broker_heartbeat_request_v5": HEARTBEAT_REQUEST_V5,
    "broker_heartbeat_reply_v5": HEARTBEAT_REPLY_V5,
    "join_request_v1": JOIN_REQUEST_V1,
    "raft_request_v1": RaftRequest(
        cluster_id="5f3a9c1e7b2d4f60a8c1e3d5", messages=[b"first", b"second"]
    ),
}
"""Messages of older golden frames by name, if they have fewer fields than today."""
