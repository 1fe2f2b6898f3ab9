"""Messages between the brokers of a cluster: who is there, and what Raft says.

Pure: declarations. They are spoken on the same port as everything else. No client needs them.
"""

import msgspec


class PeerStatusRequest(msgspec.Struct, frozen=True, array_like=True):
    """Ask a node who it is, before there is a cluster."""

    node_id: int
    """Who asks."""


class Peer(msgspec.Struct, frozen=True, array_like=True):
    """A node with its metadata directory; with another directory it is another peer."""

    node_id: int
    disk_id: bytes
    """Drawn when the directory was made."""


class PeerStatusReply(msgspec.Struct, frozen=True, array_like=True):
    """What a node says of itself."""

    peer: Peer
    peer_ids: list[int]
    """Node ids that it was started with, itself included, ascending."""
    cluster_id: str | None
    """Of the cluster that it belongs to, `None` as long as it belongs to none."""
    first_voters: list[Peer]
    """With whom the cluster began; empty without a cluster, or when nobody needs to know any more,
    because a snapshot has taken the place of the beginning."""


class RaftRequest(msgspec.Struct, frozen=True, array_like=True):
    """Messages of Raft; what they are answered with comes in requests the other way."""

    cluster_id: str
    """Refused by a node of another cluster."""
    messages: list[bytes]
    """In the order in which they were sent; each is a message of `coordinator.raft.messages`."""
    is_answered: bool = True
    """Whether the sender wants to know that they have arrived; a refusal is sent in any case.
    Since version 2."""


class RaftReply(msgspec.Struct, frozen=True, array_like=True):
    """The messages have arrived, which says nothing of what becomes of them."""

    node_id: int


class RaftSnapshotRequest(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a snapshot, which is the attachment; pieces come in order, on one connection."""

    cluster_id: str
    message: bytes
    """The message of Raft that offers the snapshot; the same with every piece."""
    position: int
    """Of the first byte of the piece; 0 begins anew."""
    total_bytes: int
    """Length of the whole snapshot; with the last piece the message takes effect."""


class RaftSnapshotReply(msgspec.Struct, frozen=True, array_like=True):
    """How far the snapshot has come."""

    received_bytes: int


class ForwardCommandRequest(msgspec.Struct, frozen=True, array_like=True):
    """Have a command about the cluster's metadata carried out by the node that leads it."""

    cluster_id: str
    """Refused by a node of another cluster."""
    command: bytes
    """See `coordinator.metadata.commands`. Giving it again does no harm."""


class ForwardCommandReply(msgspec.Struct, frozen=True, array_like=True):
    """It is committed."""

    reply: bytes
    """See `coordinator.metadata.commands`."""
    index: int
    """Whoever has applied the metadata up to here, inclusive, sees what came of it."""


class BrokerHeartbeatRequest(msgspec.Struct, frozen=True, array_like=True):
    """A broker tells the node that leads the cluster that it lives."""

    cluster_id: str
    """Refused by a node of another cluster."""
    node_id: int
    broker_epoch: int
    """Of its registration; an older one is refused."""
    is_caught_up: bool
    """Whether it has applied the metadata up to its own registration."""
    wants_to_stop: bool
    """Whether others are to take over what it leads."""
    applied_index: int | None = None
    """Up to which entry it has applied the metadata; `None` from one that does not say so.
    Since version 2."""


class BrokerHeartbeatReply(msgspec.Struct, frozen=True, array_like=True):
    """How the broker stands."""

    is_fenced: bool
    """It may not lead, nor be in sync."""
    may_stop: bool
    """It leads nothing any more that others could."""
    metadata_index: int
    """Up to which entry the broker must have applied the metadata before it may lead."""
    is_counted: bool = True
    """Whether it counts as heard of; not while it is long behind with the metadata.
    Since version 2."""


class JoinRequest(msgspec.Struct, frozen=True, array_like=True):
    """A node that has started asks to be sent the metadata, as one of the cluster's nodes."""

    cluster_id: str
    """Refused by a node of another cluster."""
    peer: Peer
    host: str
    port: int
    """Where it is reached now."""
    is_passed_on: bool = False
    """Whether a node that does not lead sends it on; it is passed on once only."""


class JoinReply(msgspec.Struct, frozen=True, array_like=True):
    """The node is a member of the cluster."""

    leader_id: int
    """Who leads the cluster."""
    host: str
    """Where that one is reached; empty if it is the one that was asked."""
    port: int
    """The same; 0 if it is the one that was asked."""
