"""Handlers of RAFT and RAFT_SNAPSHOT: messages of Raft from other nodes."""

from typing import Final, final

from tidelog.coordinator.raft.membership import Identity, check_cluster
from tidelog.coordinator.raft.messages import Message, SnapshotRequest, decode
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.errors import InvalidRequestError, NotANodeError, WireFormatError
from tidelog.wire.messages.cluster import (
    RaftReply,
    RaftRequest,
    RaftSnapshotReply,
    RaftSnapshotRequest,
)

_SNAPSHOT_BYTES_MAX: Final = 1 << 30


@final
class RaftHandler:
    """Passes messages to the node, and assembles snapshots."""

    def __init__(self, node: RaftNode) -> None:
        """Pass messages to `node`."""
        self._node = node
        self._pieces: dict[Identity, bytearray] = {}
        """Received bytes of snapshots under way, by sender."""

    def handle(
        self, request: RaftRequest, attachment: memoryview, node_id: int
    ) -> RaftReply | None:
        """Receive messages of a node; return `None` if it wants no reply.

        Raises:
            InvalidRequestError: The messages come from another cluster, or are no messages of Raft,
                or hold an entry that this node cannot read, and none of them was received. Or no
                correct node sends one of them now; those before it were received.
            NotANodeError: Another node than the sender has sent them; none of them was received.
        """
        del attachment
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        try:
            messages = [decode(message) for message in request.messages]
            for message in messages:
                _check_sender(message, node_id)
                self._node.check(message)
        except WireFormatError as error:
            raise InvalidRequestError(str(error)) from error
        for message in messages:
            if not isinstance(message, SnapshotRequest):  # An offer without data is useless.
                self._node.received(message)
        return RaftReply(self._node.identity.node_id) if request.is_answered else None

    def handle_snapshot(
        self, request: RaftSnapshotRequest, piece: memoryview, node_id: int
    ) -> RaftSnapshotReply:
        """Receive a piece of a snapshot of a node.

        Raises:
            InvalidRequestError: The piece comes from another cluster or out of order, or is no
                piece.
            NotANodeError: Another node than the sender has sent it.
        """
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        try:
            offer = decode(request.message)
        except WireFormatError as error:
            raise InvalidRequestError(str(error)) from error
        if not isinstance(offer, SnapshotRequest):
            raise InvalidRequestError("the message does not offer a snapshot")
        _check_sender(offer, node_id)
        if not 0 <= request.total_bytes <= _SNAPSHOT_BYTES_MAX:
            raise InvalidRequestError(f"a snapshot of {request.total_bytes} bytes is too large")
        if request.position == 0:
            # One snapshot at a time, since there is one leader.
            self._pieces = {offer.sender: bytearray()}
        data = self._pieces.get(offer.sender)
        if data is None or len(data) != request.position:
            raise InvalidRequestError(
                f"a piece of a snapshot begins at {request.position}, and"
                f" {0 if data is None else len(data)} bytes were received; send the snapshot from"
                " the start"
            )
        data += piece
        if len(data) > request.total_bytes:
            raise InvalidRequestError("the pieces are longer than the whole snapshot")
        if len(data) == request.total_bytes:
            del self._pieces[offer.sender]
            self._receive_snapshot(offer, bytes(data))
        return RaftSnapshotReply(len(data))

    def _receive_snapshot(self, offer: SnapshotRequest, data: bytes) -> None:
        try:
            self._node.check(offer, data)
        except WireFormatError as error:
            raise InvalidRequestError(str(error)) from error
        self._node.received(offer, data)


def _check_sender(message: Message, node_id: int) -> None:
    if message.sender.node_id != node_id:
        raise NotANodeError(f"node {node_id} sent a message of node {message.sender.node_id}")
