"""The membership: voters, learners, and the identity of each.

Pure: no clock, no I/O.

A node is its id *and* its disk. The promises of a voter (its vote, the entries that it reported as
durable) are on its disk. With another disk it is another node without these promises, although it
may have the same name and address. So the disk id, drawn at the first use of a disk, is part of the
identity, and messages of one identity never count for another (I75).

A membership is written to the log in full, as the payload of an entry, and is in force from the
moment it is appended.
"""

from collections.abc import Iterable
from typing import Annotated, Self, final

import msgspec

from tidelog.coordinator.raft.errors import MembershipRefusedError
from tidelog.wire.errors import InvalidRequestError, WireFormatError
from tidelog.wire.messages.field_types import NodeId

MEMBER_COUNT_MAX = 64

DiskId = Annotated[bytes, msgspec.Meta(min_length=1, max_length=16)]


@final
class Identity(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One node with one disk."""

    node_id: NodeId
    """Set by the operator; at most one identity with this id is a member at any time."""
    disk_id: DiskId
    """Random bytes, drawn when the disk was first used."""

    def __str__(self) -> str:
        return f"{self.node_id}@{self.disk_id.hex()[:8]}"


Members = Annotated[tuple[Identity, ...], msgspec.Meta(max_length=MEMBER_COUNT_MAX)]


@final
class Membership(msgspec.Struct, frozen=True, array_like=True):
    """The voters and learners of one membership entry.

    Invariant: both are sorted, and no node id is in them twice.
    """

    voters: Members = ()
    """Nodes whose majority elects and commits."""
    learners: Members = ()
    """Nodes that get all entries, and do not count."""

    @classmethod
    def of_voters(cls, voters: Iterable[Identity]) -> Self:
        """Return the first membership of a new cluster; every voter must start with the same."""
        return cls(tuple(sorted(voters)))

    @property
    def members(self) -> tuple[Identity, ...]:
        """Voters, then learners."""
        return self.voters + self.learners

    def others(self, voter: Identity) -> list[Identity]:
        """Return all voters but this one."""
        return [other for other in self.voters if other != voter]

    def identity_of(self, node_id: int) -> Identity | None:
        """Return the member with this node id."""
        return next((member for member in self.members if member.node_id == node_id), None)

    def is_majority(self, identities: Iterable[Identity]) -> bool:
        """Return whether these include a majority of the voters; other nodes do not count."""
        voters = set(self.voters)
        return 2 * len(voters & set(identities)) > len(voters)

    def with_learner(self, identity: Identity) -> "Membership":
        """Return the membership with one more learner.

        Raises:
            MembershipRefusedError: The node id is taken.
        """
        known = self.identity_of(identity.node_id)
        if known is not None:
            raise MembershipRefusedError(
                f"node {identity.node_id} is a member already, with disk {known.disk_id.hex()};"
                " remove it first if it has lost that disk"
            )
        if len(self.members) >= MEMBER_COUNT_MAX:
            raise MembershipRefusedError(f"there are {MEMBER_COUNT_MAX} members; that is the limit")
        return Membership(self.voters, tuple(sorted((*self.learners, identity))))

    def with_promoted(self, node_id: int) -> "Membership":
        """Return the membership with a learner promoted to a voter.

        Raises:
            MembershipRefusedError: The node is no learner.
        """
        identity = self.identity_of(node_id)
        if identity is None or identity not in self.learners:
            raise MembershipRefusedError(f"node {node_id} is no learner; add it as a learner first")
        others = tuple(learner for learner in self.learners if learner != identity)
        return Membership(tuple(sorted((*self.voters, identity))), others)

    def without(self, node_id: int) -> "Membership":
        """Return the membership without a member.

        Raises:
            MembershipRefusedError: There is no such member, or it is the last voter.
        """
        identity = self.identity_of(node_id)
        if identity is None:
            raise MembershipRefusedError(f"node {node_id} is no member, there is nothing to remove")
        if self.voters == (identity,):
            raise MembershipRefusedError(
                f"node {node_id} is the last voter; promote another node before it is removed"
            )
        return Membership(
            tuple(voter for voter in self.voters if voter != identity),
            tuple(learner for learner in self.learners if learner != identity),
        )


def check_cluster(cluster_id: str, identity: Identity, own_cluster_id: str) -> None:
    """Check that a request comes from this node's cluster.

    Raises:
        InvalidRequestError: It comes from another cluster; the text names both.
    """
    if cluster_id != own_cluster_id:
        raise InvalidRequestError(
            f"node {identity.node_id} belongs to cluster {own_cluster_id}, not to {cluster_id}"
        )


def index_of_majority(indexes: Iterable[int]) -> int:
    """Return the highest index that more than half of these have reached.

    `indexes` holds one number for each voter, and at least one.
    """
    descending = sorted(indexes, reverse=True)
    return descending[len(descending) // 2]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Membership)


def encode_membership(membership: Membership) -> bytes:
    """Return the payload of a membership entry."""
    return _encoder.encode(membership)


def decode_membership(payload: bytes) -> Membership:
    """Return the membership of an entry's payload.

    Raises:
        WireFormatError: The payload is no membership.
    """
    try:
        return _decoder.decode(payload)
    except ValueError as error:  # a MsgspecError, or a UnicodeDecodeError
        raise WireFormatError(f"not a membership: {error}") from error
