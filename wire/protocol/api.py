"""Registry of APIs with number, versions and message types, and the codec of messages.

Pure: no clock, no I/O.

How to change a message: append a field with a default, raise `max_version` here, describe the
version in `docs/protocol.md`, add its bytes to the golden file. Both sides accept messages with
fewer fields (an older peer) and with more (a newer one).
"""

from collections.abc import Sequence
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, Generic, TypeVar, final

import msgspec

from tidelog.wire.errors import ErrorDetail, UnsupportedVersionError, WireFormatError
from tidelog.wire.messages import (
    access,
    access_keys,
    certificates,
    cluster,
    cluster_admin,
    features,
    fetch,
    groups,
    handshake,
    hot_keys,
    keys,
    metadata,
    metrics,
    names,
    offset_ranges,
    produce,
    queue_admin,
    queues,
    quotas,
    reassignment,
    redrives,
    replication,
    topic_usage,
    topics,
    transactions,
    users,
)
from tidelog.wire.protocol.frame import FrameKind, encode_frame

HEADER_BYTES_MAX: Final = 256 << 10
"""Maximum bytes of a request's header from a client: decoding it takes a few milliseconds."""

Request = TypeVar("Request")
Reply = TypeVar("Reply")

_encoder = msgspec.msgpack.Encoder()
encode_message: Final = _encoder.encode
"""Returns the header of a frame with a message."""
_error_decoder = msgspec.msgpack.Decoder(ErrorDetail)


class ApiKey(IntEnum):
    """The number of an API on the wire. Numbers are never reused: 18, 25, 56 and 57 were in use."""

    HELLO = 0
    METADATA = 1
    CREATE_TOPIC = 2
    DESCRIBE_TOPICS = 3
    ALTER_TOPIC = 4
    DELETE_TOPIC = 5
    DELETE_RECORDS = 6
    INIT_PRODUCER = 7
    PRODUCE = 8
    FETCH = 9
    LIST_OFFSETS = 10
    GROUP_HEARTBEAT = 11
    COMMIT_OFFSETS = 12
    FETCH_OFFSETS = 13
    LIST_GROUPS = 14
    DESCRIBE_GROUPS = 15
    RESET_OFFSETS = 16
    DELETE_GROUP = 17
    ADD_PARTITIONS = 19
    PEER_STATUS = 20
    RAFT = 21
    RAFT_SNAPSHOT = 22
    FORWARD_COMMAND = 23
    BROKER_HEARTBEAT = 24
    REPLICA_FETCH = 26
    REPLICA_DURABLE = 27
    REPLICA_READ = 28
    TOPIC_USAGE = 29
    JOIN = 30
    DESCRIBE_CLUSTER = 31
    ELECT_LEADERS = 32
    REASSIGN = 33
    ALTER_CLUSTER_CONFIG = 34
    LIST_REASSIGNMENTS = 35
    DRAIN_BROKER = 36
    UNREGISTER_BROKER = 37
    DESCRIBE_CONFIG = 38
    ACKNOWLEDGE_EVENTS = 39
    CREATE_QUEUE = 40
    DESCRIBE_QUEUES = 41
    ALTER_QUEUE = 42
    DELETE_QUEUE = 43
    SEND = 44
    RECEIVE = 45
    SETTLE = 46
    PEEK = 47
    COUNT_MESSAGES = 48
    PURGE = 49
    QUEUE_SEEK = 50
    REDRIVE = 51
    GET_PURGE_OFFSET = 52
    CANCEL_SCHEDULED = 53
    DESCRIBE_REDRIVE = 54
    DESCRIBE_PRODUCER = 55
    BEGIN_TRANSACTION = 60
    STAGE = 61
    COMMIT_TRANSACTION = 62
    ABORT_TRANSACTION = 63
    LIST_TRANSACTIONS = 64
    PROVE_NODE = 65
    UPDATE_FEATURES = 66
    LIST_TOPICS = 67
    LIST_QUEUES = 68
    HOT_KEYS = 69
    ALTER_GROUP = 70
    SAFE_TO_STOP = 71
    READ_METRICS = 72
    AUTHENTICATE = 73
    ALTER_USERS = 74
    LIST_USERS = 75
    ALTER_ACCESS = 76
    LIST_ACCESS = 77
    EXPLAIN_ACCESS = 78
    ALTER_QUOTAS = 79
    LIST_QUOTAS = 80
    ALTER_KEYS = 81
    LIST_KEYS = 82
    LIST_CERTIFICATES = 83
    AWAIT_METADATA = 86
    CREATE_QUEUES = 87
    AWAIT_APPENDED = 88
    FORGET_TRANSACTIONS = 89
    ALTER_ACCESS_KEYS = 90
    LIST_ACCESS_KEYS = 91
    GET_SIGNING_KEY = 92
    IMPERSONATE = 93
    END_RECEIVES = 94


@final
class Api(Generic[Request, Reply]):
    """One API: request type, reply type and versions."""

    def __init__(
        self,
        key: ApiKey,
        request_type: type[Request],
        reply_type: type[Reply],
        *,
        min_version: int = 1,
        max_version: int = 1,
        header_bytes_max: int = HEADER_BYTES_MAX,
    ) -> None:
        """Support the versions from `min_version` to `max_version`, both inclusive.

        A client's request has a header of at most `header_bytes_max` bytes.
        """
        self.key = key
        self.header_bytes_max = header_bytes_max
        self.min_version = min_version
        self.max_version = max_version
        self._request_type = request_type
        self._reply_type = reply_type

    # Built on use: a program uses few of the APIs, and all decoders take some milliseconds.
    @cached_property
    def request_decoder(self) -> msgspec.msgpack.Decoder[Request]:
        """Decoder of requests, for a caller that handles `UNDECODABLE` as `decode_request` does."""
        return msgspec.msgpack.Decoder(self._request_type)

    @cached_property
    def _reply_decoder(self) -> msgspec.msgpack.Decoder[Reply]:
        return msgspec.msgpack.Decoder(self._reply_type)

    def encode_request(
        self, request: Request, *, version: int, correlation_id: int, attachment_length: int = 0
    ) -> bytes:
        """Return a request frame up to its attachment."""
        return encode_frame(
            FrameKind.REQUEST,
            api_key=self.key,
            api_version=version,
            correlation_id=correlation_id,
            header=_encoder.encode(request),
            attachment_length=attachment_length,
        )

    def decode_request(self, header: memoryview) -> Request:
        """Return the request in a frame's header.

        Raises:
            WireFormatError: The header is not this message.
        """
        try:
            return self.request_decoder.decode(header)
        except UNDECODABLE as error:
            raise not_decodable(error) from error

    def encode_reply(
        self,
        reply: Reply,
        *,
        version: int,
        correlation_id: int,
        attachment_length: int = 0,
        throttle: tuple[int, int] = (0, 0),
    ) -> bytes:
        """Return a reply frame up to its attachment; `throttle` as in `encode_frame`."""
        return encode_frame(
            FrameKind.REPLY,
            api_key=self.key,
            api_version=version,
            correlation_id=correlation_id,
            header=_encoder.encode(reply),
            attachment_length=attachment_length,
            throttle=throttle,
        )

    def decode_reply(self, header: memoryview) -> Reply:
        """Return the reply in a frame's header.

        Raises:
            WireFormatError: The header is not this message.
        """
        try:
            return self._reply_decoder.decode(header)
        except UNDECODABLE as error:
            raise not_decodable(error) from error


UNDECODABLE: Final = (ValueError, RecursionError)
"""Errors of a decoder: besides its own, all of them ValueErrors, UnicodeDecodeError, and
RecursionError while it skips fields of a newer peer."""


def not_decodable(error: Exception) -> WireFormatError:
    """Return the error for a header that is not the expected message."""
    return WireFormatError(f"a message cannot be decoded: {error}")


HELLO = Api(ApiKey.HELLO, handshake.HelloRequest, handshake.HelloReply)
PROVE_NODE = Api(ApiKey.PROVE_NODE, handshake.ProveNodeRequest, handshake.ProveNodeReply)
AUTHENTICATE = Api(
    ApiKey.AUTHENTICATE,
    handshake.AuthenticateRequest,
    handshake.AuthenticateReply,
    header_bytes_max=32 << 10,  # A stranger sends it: room for a JWT, and no more.
)
METADATA = Api(ApiKey.METADATA, metadata.MetadataRequest, metadata.MetadataReply, max_version=4)
CREATE_TOPIC = Api(
    ApiKey.CREATE_TOPIC, topics.CreateTopicRequest, topics.CreateTopicReply, max_version=3
)
DESCRIBE_TOPICS = Api(
    ApiKey.DESCRIBE_TOPICS,
    topics.DescribeTopicsRequest,
    topics.DescribeTopicsReply,
    max_version=6,
)
ALTER_TOPIC = Api(
    ApiKey.ALTER_TOPIC, topics.AlterTopicRequest, topics.AlterTopicReply, max_version=2
)
DELETE_TOPIC = Api(ApiKey.DELETE_TOPIC, topics.DeleteTopicRequest, topics.DeleteTopicReply)
DELETE_RECORDS = Api(ApiKey.DELETE_RECORDS, topics.DeleteRecordsRequest, topics.DeleteRecordsReply)
INIT_PRODUCER = Api(ApiKey.INIT_PRODUCER, produce.InitProducerRequest, produce.InitProducerReply)
PRODUCE = Api(ApiKey.PRODUCE, produce.ProduceRequest, produce.ProduceReply)
FETCH = Api(ApiKey.FETCH, fetch.FetchRequest, fetch.FetchReply, max_version=5)
LIST_OFFSETS = Api(
    ApiKey.LIST_OFFSETS,
    offset_ranges.ListOffsetsRequest,
    offset_ranges.ListOffsetsReply,
    max_version=2,
)
GROUP_HEARTBEAT = Api(
    ApiKey.GROUP_HEARTBEAT, groups.GroupHeartbeatRequest, groups.GroupHeartbeatReply
)
COMMIT_OFFSETS = Api(ApiKey.COMMIT_OFFSETS, groups.CommitOffsetsRequest, groups.CommitOffsetsReply)
FETCH_OFFSETS = Api(ApiKey.FETCH_OFFSETS, groups.FetchOffsetsRequest, groups.FetchOffsetsReply)
LIST_GROUPS = Api(
    ApiKey.LIST_GROUPS, groups.ListGroupsRequest, groups.ListGroupsReply, max_version=2
)
DESCRIBE_GROUPS = Api(
    ApiKey.DESCRIBE_GROUPS, groups.DescribeGroupsRequest, groups.DescribeGroupsReply, max_version=2
)
RESET_OFFSETS = Api(ApiKey.RESET_OFFSETS, groups.ResetOffsetsRequest, groups.ResetOffsetsReply)
ALTER_GROUP = Api(ApiKey.ALTER_GROUP, groups.AlterGroupRequest, groups.AlterGroupReply)
DELETE_GROUP = Api(ApiKey.DELETE_GROUP, groups.DeleteGroupRequest, groups.DeleteGroupReply)
ADD_PARTITIONS = Api(ApiKey.ADD_PARTITIONS, topics.AddPartitionsRequest, topics.AddPartitionsReply)
TOPIC_USAGE = Api(ApiKey.TOPIC_USAGE, topic_usage.TopicUsageRequest, topic_usage.TopicUsageReply)
PEER_STATUS = Api(
    ApiKey.PEER_STATUS, cluster.PeerStatusRequest, cluster.PeerStatusReply, max_version=2
)
RAFT = Api(ApiKey.RAFT, cluster.RaftRequest, cluster.RaftReply, max_version=2)
RAFT_SNAPSHOT = Api(ApiKey.RAFT_SNAPSHOT, cluster.RaftSnapshotRequest, cluster.RaftSnapshotReply)
FORWARD_COMMAND = Api(
    ApiKey.FORWARD_COMMAND, cluster.ForwardCommandRequest, cluster.ForwardCommandReply
)
BROKER_HEARTBEAT = Api(
    ApiKey.BROKER_HEARTBEAT,
    cluster.BrokerHeartbeatRequest,
    cluster.BrokerHeartbeatReply,
    max_version=6,
)
AWAIT_METADATA = Api(
    ApiKey.AWAIT_METADATA, cluster.AwaitMetadataRequest, cluster.AwaitMetadataReply
)
JOIN = Api(ApiKey.JOIN, cluster.JoinRequest, cluster.JoinReply, max_version=2)
DESCRIBE_CLUSTER = Api(
    ApiKey.DESCRIBE_CLUSTER,
    cluster_admin.DescribeClusterRequest,
    cluster_admin.DescribeClusterReply,
    max_version=7,
)
ELECT_LEADERS = Api(
    ApiKey.ELECT_LEADERS, cluster_admin.ElectLeadersRequest, cluster_admin.ElectLeadersReply
)
REPLICA_FETCH = Api(
    ApiKey.REPLICA_FETCH,
    replication.ReplicaFetchRequest,
    replication.ReplicaFetchReply,
    max_version=4,
)
REPLICA_DURABLE = Api(
    ApiKey.REPLICA_DURABLE,
    replication.ReplicaDurableRequest,
    replication.ReplicaDurableReply,
    max_version=2,
)
REPLICA_READ = Api(
    ApiKey.REPLICA_READ, replication.ReplicaReadRequest, replication.ReplicaReadReply
)
REASSIGN = Api(
    ApiKey.REASSIGN, reassignment.ReassignRequest, reassignment.ReassignReply, max_version=3
)
ALTER_CLUSTER_CONFIG = Api(
    ApiKey.ALTER_CLUSTER_CONFIG,
    cluster_admin.AlterClusterConfigRequest,
    cluster_admin.AlterClusterConfigReply,
)
LIST_REASSIGNMENTS = Api(
    ApiKey.LIST_REASSIGNMENTS,
    reassignment.ListReassignmentsRequest,
    reassignment.ListReassignmentsReply,
)
DRAIN_BROKER = Api(
    ApiKey.DRAIN_BROKER, reassignment.DrainBrokerRequest, reassignment.DrainBrokerReply
)
UNREGISTER_BROKER = Api(
    ApiKey.UNREGISTER_BROKER,
    cluster_admin.UnregisterBrokerRequest,
    cluster_admin.UnregisterBrokerReply,
)
DESCRIBE_CONFIG = Api(
    ApiKey.DESCRIBE_CONFIG,
    cluster_admin.DescribeConfigRequest,
    cluster_admin.DescribeConfigReply,
)
ALTER_KEYS = Api(ApiKey.ALTER_KEYS, keys.AlterKeysRequest, keys.AlterKeysReply)
LIST_KEYS = Api(ApiKey.LIST_KEYS, keys.ListKeysRequest, keys.ListKeysReply)
ACKNOWLEDGE_EVENTS = Api(
    ApiKey.ACKNOWLEDGE_EVENTS,
    cluster_admin.AcknowledgeEventsRequest,
    cluster_admin.AcknowledgeEventsReply,
)
CREATE_QUEUE = Api(
    ApiKey.CREATE_QUEUE,
    queue_admin.CreateQueueRequest,
    queue_admin.CreateQueueReply,
    max_version=2,
)
CREATE_QUEUES = Api(
    ApiKey.CREATE_QUEUES,
    queue_admin.CreateQueuesRequest,
    queue_admin.CreateQueuesReply,
    header_bytes_max=1 << 20,
)
DESCRIBE_QUEUES = Api(
    ApiKey.DESCRIBE_QUEUES,
    queue_admin.DescribeQueuesRequest,
    queue_admin.DescribeQueuesReply,
    max_version=3,
)
ALTER_QUEUE = Api(
    ApiKey.ALTER_QUEUE, queue_admin.AlterQueueRequest, queue_admin.AlterQueueReply, max_version=2
)
DELETE_QUEUE = Api(
    ApiKey.DELETE_QUEUE, queue_admin.DeleteQueueRequest, queue_admin.DeleteQueueReply
)
SEND = Api(ApiKey.SEND, queues.SendRequest, queues.SendReply)
RECEIVE = Api(ApiKey.RECEIVE, queues.ReceiveRequest, queues.ReceiveReply, max_version=4)
END_RECEIVES = Api(ApiKey.END_RECEIVES, queues.EndReceivesRequest, queues.EndReceivesReply)
SETTLE = Api(ApiKey.SETTLE, queues.SettleRequest, queues.SettleReply)
PEEK = Api(ApiKey.PEEK, queues.PeekRequest, queues.PeekReply, max_version=2)
COUNT_MESSAGES = Api(ApiKey.COUNT_MESSAGES, queues.CountMessagesRequest, queues.CountMessagesReply)
PURGE = Api(ApiKey.PURGE, queues.PurgeRequest, queues.QueueDoneReply)
QUEUE_SEEK = Api(ApiKey.QUEUE_SEEK, queues.QueueSeekRequest, queues.QueueDoneReply)
REDRIVE = Api(ApiKey.REDRIVE, queues.RedriveRequest, queues.QueueDoneReply, max_version=2)
GET_PURGE_OFFSET = Api(
    ApiKey.GET_PURGE_OFFSET, queues.GetPurgeOffsetRequest, queues.GetPurgeOffsetReply
)
CANCEL_SCHEDULED = Api(
    ApiKey.CANCEL_SCHEDULED, queues.CancelScheduledRequest, queues.CancelScheduledReply
)
DESCRIBE_REDRIVE = Api(
    ApiKey.DESCRIBE_REDRIVE,
    redrives.DescribeRedriveRequest,
    redrives.DescribeRedriveReply,
    max_version=2,
)
DESCRIBE_PRODUCER = Api(
    ApiKey.DESCRIBE_PRODUCER, produce.DescribeProducerRequest, produce.DescribeProducerReply
)
BEGIN_TRANSACTION = Api(
    ApiKey.BEGIN_TRANSACTION,
    transactions.BeginTransactionRequest,
    transactions.BeginTransactionReply,
    max_version=2,
)
STAGE = Api(ApiKey.STAGE, transactions.StageRequest, produce.ProduceReply)
COMMIT_TRANSACTION = Api(
    ApiKey.COMMIT_TRANSACTION,
    transactions.CommitTransactionRequest,
    transactions.CommitTransactionReply,
    max_version=2,
    header_bytes_max=1 << 20,  # A commit cannot be divided, and names up to 50,000 pieces.
)
ABORT_TRANSACTION = Api(
    ApiKey.ABORT_TRANSACTION,
    transactions.AbortTransactionRequest,
    transactions.AbortTransactionReply,
)
LIST_TRANSACTIONS = Api(
    ApiKey.LIST_TRANSACTIONS,
    transactions.ListTransactionsRequest,
    transactions.ListTransactionsReply,
)
FORGET_TRANSACTIONS = Api(
    ApiKey.FORGET_TRANSACTIONS,
    transactions.ForgetTransactionsRequest,
    transactions.ForgetTransactionsReply,
)
AWAIT_APPENDED = Api(
    ApiKey.AWAIT_APPENDED,
    transactions.AwaitAppendedRequest,
    transactions.AwaitAppendedReply,
)

UPDATE_FEATURES = Api(
    ApiKey.UPDATE_FEATURES, features.UpdateFeaturesRequest, features.UpdateFeaturesReply
)
LIST_TOPICS = Api(ApiKey.LIST_TOPICS, names.ListNamesRequest, names.ListNamesReply)
LIST_QUEUES = Api(ApiKey.LIST_QUEUES, names.ListNamesRequest, names.ListNamesReply)
HOT_KEYS = Api(ApiKey.HOT_KEYS, hot_keys.HotKeysRequest, hot_keys.HotKeysReply)
SAFE_TO_STOP = Api(
    ApiKey.SAFE_TO_STOP, cluster_admin.SafeToStopRequest, cluster_admin.SafeToStopReply
)
ALTER_QUOTAS = Api(ApiKey.ALTER_QUOTAS, quotas.AlterQuotasRequest, quotas.AlterQuotasReply)
LIST_QUOTAS = Api(ApiKey.LIST_QUOTAS, quotas.ListQuotasRequest, quotas.ListQuotasReply)
READ_METRICS = Api(ApiKey.READ_METRICS, metrics.ReadMetricsRequest, metrics.ReadMetricsReply)
ALTER_USERS = Api(ApiKey.ALTER_USERS, users.AlterUsersRequest, users.AlterUsersReply)
LIST_USERS = Api(ApiKey.LIST_USERS, users.ListUsersRequest, users.ListUsersReply)
ALTER_ACCESS = Api(ApiKey.ALTER_ACCESS, access.AlterAccessRequest, access.AlterAccessReply)
LIST_ACCESS = Api(ApiKey.LIST_ACCESS, access.ListAccessRequest, access.ListAccessReply)
EXPLAIN_ACCESS = Api(ApiKey.EXPLAIN_ACCESS, access.ExplainAccessRequest, access.ExplainAccessReply)
ALTER_ACCESS_KEYS = Api(
    ApiKey.ALTER_ACCESS_KEYS,
    access_keys.AlterAccessKeysRequest,
    access_keys.AlterAccessKeysReply,
)
LIST_ACCESS_KEYS = Api(
    ApiKey.LIST_ACCESS_KEYS, access_keys.ListAccessKeysRequest, access_keys.ListAccessKeysReply
)
GET_SIGNING_KEY = Api(
    ApiKey.GET_SIGNING_KEY, access_keys.GetSigningKeyRequest, access_keys.GetSigningKeyReply
)
IMPERSONATE = Api(ApiKey.IMPERSONATE, access_keys.ImpersonateRequest, access_keys.ImpersonateReply)
LIST_CERTIFICATES = Api(
    ApiKey.LIST_CERTIFICATES,
    certificates.ListCertificatesRequest,
    certificates.ListCertificatesReply,
)

AnyApi = Api[object, object]

APIS: Final[tuple[Api[Any, Any], ...]] = tuple(
    each for each in tuple(globals().values()) if isinstance(each, Api)
)
"""Every API, in the order above."""


def encode_error(
    detail: ErrorDetail,
    *,
    api_key: int,
    api_version: int,
    correlation_id: int,
    throttle: tuple[int, int] = (0, 0),
) -> bytes:
    """Return an error reply frame, for a request that failed as a whole."""
    return encode_frame(
        FrameKind.ERROR,
        api_key=api_key,
        api_version=api_version,
        correlation_id=correlation_id,
        header=_encoder.encode(detail),
        throttle=throttle,
    )


def decode_error(header: memoryview) -> ErrorDetail:
    """Return the error in an error reply's header.

    Raises:
        WireFormatError: The header is not an error.
    """
    try:
        return _error_decoder.decode(header)
    except UNDECODABLE as error:
        raise not_decodable(error) from error


def choose_version(api: Api[Request, Reply], offered: Sequence[handshake.ApiVersions]) -> int:
    """Return the highest version of `api` that this client and the broker support.

    Raises:
        UnsupportedVersionError: They share no version.
    """
    for versions in offered:
        if versions.api_key == api.key:
            version = min(api.max_version, versions.max_version)
            if version >= max(api.min_version, versions.min_version):
                return version
            raise UnsupportedVersionError(
                f"the broker supports {api.key.name} {versions.min_version} to"
                f" {versions.max_version}, this client {api.min_version} to {api.max_version};"
                f" upgrade the older of the two",
                min_version=versions.min_version,
                max_version=versions.max_version,
            )
    raise UnsupportedVersionError(f"the broker does not offer {api.key.name}; upgrade it")
