"""Messages between the brokers of a cluster: peer status, Raft, heartbeats, joins.

Pure: declarations. They use the same port as client requests. No client needs them.
"""

from typing import Annotated, Final

import msgspec

from tidelog.wire.messages.features import SupportedLevels
from tidelog.wire.messages.field_types import (
    BrokerEpoch,
    ByteCount,
    Listed,
    LongListed,
    NodeId,
    PartitionNumber,
    Port,
)
from tidelog.wire.messages.quotas import PrincipalShare, PrincipalUse

DAMAGED_NAMED_MAX: Final = 20
"""Maximum number of damaged replicas that a broker names in its heartbeats."""


class PeerStatusRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node for its identity, before the cluster is formed."""

    node_id: NodeId
    """The sender."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A node and its metadata directory; with another directory it is another peer."""

    node_id: NodeId
    disk_id: bytes
    """Random id from the creation of the directory."""


class KnownDirectory(msgspec.Struct, frozen=True, array_like=True):
    """The data directory of a broker, as far as a node knows."""

    node_id: NodeId
    disk_id: str
    """Random id from the creation of the directory."""
    directory_epoch: BrokerEpoch
    """Highest broker epoch that the directory is known to have held; with a lower one it has older
    data."""


class PeerStatusReply(msgspec.Struct, frozen=True, array_like=True):
    """The identity of a node."""

    peer: Peer
    peer_ids: list[NodeId]
    """Node ids in the node's settings, its own included, ascending."""
    cluster_id: str | None
    """The node's cluster, `None` before it belongs to one."""
    first_voters: list[Peer]
    """The first voters of the cluster; empty without a cluster, or when no node needs them any more
    because a snapshot has replaced the start of the metadata log."""
    directories: list[KnownDirectory] = []
    """The data directories that the node knows from its metadata, by node id. Since version 2."""
    is_leading: bool = False
    """Whether the node is the active controller, so that its metadata has all that was committed
    before its election. Since version 2."""


class RaftRequest(msgspec.Struct, frozen=True, array_like=True):
    """Raft messages; their answers travel as requests in the other direction."""

    cluster_id: str
    """Refused by a node of another cluster."""
    messages: list[bytes]
    """Messages of `coordinator.raft.messages`, in the order of sending."""
    is_answered: bool = True
    """Whether the sender wants an acknowledgement of arrival; a refusal is sent in any case.
    Since version 2."""


class RaftReply(msgspec.Struct, frozen=True, array_like=True):
    """The messages have arrived; their outcome is open."""

    node_id: NodeId


class RaftSnapshotRequest(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a snapshot, which is the attachment; pieces come in order, on one connection."""

    cluster_id: str
    message: bytes
    """The Raft message that offers the snapshot; the same with every piece."""
    position: ByteCount
    """Position of the first byte of the piece; 0 restarts the transfer."""
    total_bytes: ByteCount
    """Bytes of the whole snapshot; the message takes effect with the last piece."""


class RaftSnapshotReply(msgspec.Struct, frozen=True, array_like=True):
    """Progress of a snapshot transfer."""

    received_bytes: int


class ForwardCommandRequest(msgspec.Struct, frozen=True, array_like=True):
    """Forward a metadata command to the controller."""

    cluster_id: str
    """Refused by a node of another cluster."""
    command: bytes
    """See `coordinator.metadata.commands`. Commands are idempotent."""


class ForwardCommandReply(msgspec.Struct, frozen=True, array_like=True):
    """The command is committed."""

    reply: bytes
    """See `coordinator.metadata.commands`."""
    index: int
    """Index of the metadata log at which the command's effect is applied (inclusive)."""


class AwaitMetadataRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node to answer when it has applied an entry of the metadata."""

    cluster_id: str
    """Refused by a node of another cluster."""
    index: Annotated[int, msgspec.Meta(ge=0)]
    """Index of the metadata log (inclusive)."""


class AwaitMetadataReply(msgspec.Struct, frozen=True, array_like=True):
    """The node has applied the entry."""

    applied_index: int


class DamagedPartition(msgspec.Struct, frozen=True, array_like=True):
    """A partition with a damaged replica."""

    topic_id: bytes
    partition: PartitionNumber


class DamagedReplicas(msgspec.Struct, frozen=True, array_like=True):
    """The replicas of one broker with damage that is known and not repaired."""

    node_id: NodeId
    count: Annotated[int, msgspec.Meta(ge=0)]
    """Damaged replicas of the broker."""
    partitions: Listed[DamagedPartition]
    """The first of them."""


class BrokerHeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    """A broker's heartbeat to the controller."""

    cluster_id: str
    """Refused by a node of another cluster."""
    node_id: NodeId
    broker_epoch: BrokerEpoch
    """Epoch of the broker's registration; an older epoch is refused."""
    is_caught_up: bool
    """Whether the broker has applied the metadata up to its own registration."""
    wants_to_stop: bool
    """Whether other brokers are to take over its partitions (controlled shutdown)."""
    applied_index: int | None = None
    """Index of the broker's last applied metadata entry; `None` before version 2."""
    directory_epoch: BrokerEpoch | None = None
    """Broker epoch that the broker's data directory holds, durably; `None` before version 3."""
    wall_ms: int | None = None
    """Wall clock of the broker, Unix milliseconds. Since version 3; `None` before."""
    supported_levels: SupportedLevels | None = None
    """Feature levels that the broker supports. Since version 4; `None` before."""
    damaged: DamagedReplicas | None = None
    """Damaged replicas of the broker; `None` before it has opened its logs. Since version 5."""
    quota_use: LongListed[PrincipalUse] = []
    """Use of principals with quotas at the broker. Since version 6."""


class ClockSkew(msgspec.Struct, frozen=True, array_like=True):
    """Difference of a broker's wall clock from the agreed time."""

    node_id: NodeId
    skew_ms: int
    """Milliseconds by which the clock is ahead."""


class BrokerHeartbeatReply(msgspec.Struct, frozen=True, array_like=True):
    """State of a broker's session."""

    is_fenced: bool
    """The broker may neither lead partitions nor be in an ISR."""
    may_stop: bool
    """The broker leads no partition any more that another broker could lead."""
    metadata_index: int
    """Metadata index that the broker must have applied before it may lead."""
    is_counted: bool = True
    """Whether the heartbeat renews the session; not while the broker's metadata is far behind.
    Since version 2."""
    agreed_ms: int | None = None
    """Time on which a majority of the clocks agrees, Unix milliseconds; `None` while none does.
    Since version 3."""
    clock_skews: list[ClockSkew] = []
    """The known clocks, by node id; empty without an agreed time. Since version 3."""
    controller_ms: int | None = None
    """The controller's agreed time, maybe a former one, Unix milliseconds. Since version 3."""
    damaged: list[DamagedReplicas] = []
    """Damaged replicas of each broker that has reported, by node id. Since version 5."""
    quota_shares: list[PrincipalShare] = []
    """Shares of the broker in quotas of the whole cluster. Since version 6."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True):
    """A node that has started asks to join the cluster and receive its metadata."""

    cluster_id: str
    """Refused by a node of another cluster."""
    peer: Peer
    host: str
    port: Port
    """Present port of the node."""
    is_passed_on: bool = False
    """Whether a node that is not the controller forwards the request; it is forwarded once only."""
    supported_levels: SupportedLevels | None = None
    """Feature levels that the node supports. Since version 2; `None` before."""


class JoinReply(msgspec.Struct, frozen=True, array_like=True):
    """The node is a member of the cluster."""

    leader_id: NodeId
    """The controller."""
    host: str
    """Host of the controller; empty if the replying node is the controller."""
    port: Port
    """Port of the controller; 0 if the replying node is the controller."""
