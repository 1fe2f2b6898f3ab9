"""Messages of Raft that other brokers send."""

from typing import Final, final

from tidelog.coordinator.raft.membership import Identity, check_cluster
from tidelog.coordinator.raft.messages import SnapshotRequest, decode
from tidelog.coordinator.raft_node.node import RaftNode
from tidelog.wire.errors import InvalidRequestError, WireFormatError
from tidelog.wire.messages.cluster import (
    RaftReply,
    RaftRequest,
    RaftSnapshotReply,
    RaftSnapshotRequest,
)

_SNAPSHOT_BYTES_MAX: Final = 1 << 30


@final
class RaftHandler:
    """Hands messages to the node, and puts snapshots together."""

    def __init__(self, node: RaftNode) -> None:
        """Speak for `node`."""
        self._node = node
        self._pieces: dict[Identity, bytearray] = {}
        """What has come of snapshots that are under way, by sender."""

    def handle(self, request: RaftRequest, attachment: memoryview) -> RaftReply | None:
        """Take in messages; `None` if the sender wants no answer.

        Raises:
            InvalidRequestError: They come from another cluster, or are no messages of Raft.
        """
        del attachment
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        try:
            messages = [decode(message) for message in request.messages]
        except WireFormatError as error:
            raise InvalidRequestError(str(error)) from error
        for message in messages:
            if not isinstance(message, SnapshotRequest):  # One without data is of no use.
                self._node.received(message)
        return RaftReply(self._node.identity.node_id) if request.is_answered else None

    def handle_snapshot(self, request: RaftSnapshotRequest, piece: memoryview) -> RaftSnapshotReply:
        """Take in a piece of a snapshot.

        Raises:
            InvalidRequestError: It comes from another cluster, out of order, or is none.
        """
        check_cluster(request.cluster_id, self._node.identity, self._node.cluster_id)
        try:
            offer = decode(request.message)
        except WireFormatError as error:
            raise InvalidRequestError(str(error)) from error
        if not isinstance(offer, SnapshotRequest):
            raise InvalidRequestError("the message does not offer a snapshot")
        if not 0 <= request.total_bytes <= _SNAPSHOT_BYTES_MAX:
            raise InvalidRequestError(f"a snapshot of {request.total_bytes} bytes is too large")
        if request.position == 0:
            self._pieces = {offer.sender: bytearray()}  # One at a time: there is one leader.
        data = self._pieces.get(offer.sender)
        if data is None or len(data) != request.position:
            raise InvalidRequestError(
                f"a piece of a snapshot begins at {request.position}, and"
                f" {0 if data is None else len(data)} bytes are there; begin anew"
            )
        data += piece
        if len(data) > request.total_bytes:
            raise InvalidRequestError("there is more than the whole snapshot")
        if len(data) == request.total_bytes:
            del self._pieces[offer.sender]
            self._node.received(offer, bytes(data))
        return RaftSnapshotReply(len(data))
