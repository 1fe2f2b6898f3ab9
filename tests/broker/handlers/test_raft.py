"""Tests of RAFT and RAFT_SNAPSHOT: messages are accepted, or refused with a reason."""

from typing import Any, final

import msgspec
import pytest

from tidelog.broker.handlers.raft import RaftHandler
from tidelog.coordinator.raft.membership import Identity, Membership
from tidelog.coordinator.raft.messages import (
    AppendReply,
    AppendRequest,
    Entry,
    EntryId,
    EntryKind,
    Message,
    SnapshotMeta,
    SnapshotRequest,
    VoteRequest,
    encode,
)
from tidelog.wire.errors import InvalidRequestError, NotANodeError, WireFormatError
from tidelog.wire.messages.cluster import (
    RaftReply,
    RaftRequest,
    RaftSnapshotReply,
    RaftSnapshotRequest,
)

ME, OTHER = Identity(1, b"mine"), Identity(2, b"other")
VOTE = VoteRequest(OTHER, ME, 3, EntryId(5, 2), is_transfer=False)
REPLY = AppendReply(OTHER, ME, 3, 7, 7, 0, 0)
META = SnapshotMeta(9, 2, Membership.of_voters([ME, OTHER]))
OFFER = SnapshotRequest(OTHER, ME, 3, META)
NOTHING = memoryview(b"")
UNREADABLE = b"junk"
"""No entry or snapshot that a node can read."""
APPEND = AppendRequest(
    *(OTHER, ME, 3, EntryId(5, 2), 5, 1, 0), (Entry(6, 3, EntryKind.COMMAND, UNREADABLE),)
)


@final
class Listener:
    """Stub of a node that records messages."""

    identity = ME
    cluster_id = "ours"

    def __init__(self) -> None:
        self.heard: list[tuple[Message, bytes | None]] = []

    def check(self, message: Message, data: bytes | None = None) -> None:
        payloads = [data] if data else []
        if isinstance(message, AppendRequest):
            payloads += [entry.payload for entry in message.entries]
        if UNREADABLE in payloads:
            raise WireFormatError("not an entry of the metadata")

    def received(self, message: Message, data: bytes | None = None) -> None:
        self.heard.append((message, data))


def handler() -> tuple[RaftHandler, Listener]:
    listener = Listener()
    node: Any = listener
    return RaftHandler(node), listener


def piece(
    position: int, total: int, offer: Message = OFFER, *, cluster_id: str = "ours"
) -> RaftSnapshotRequest:
    return RaftSnapshotRequest(cluster_id, encode(offer), position, total)


def test_a_message_of_another_node_than_the_proven_one_is_refused() -> None:
    handle, listener = handler()

    with pytest.raises(NotANodeError, match="node 3 sent a message of node 2"):
        handle.handle(RaftRequest("ours", [encode(REPLY)]), NOTHING, 3)
    with pytest.raises(NotANodeError, match="node 3 sent a message of node 2"):
        handle.handle_snapshot(piece(0, 4), memoryview(b"data"), 3)

    assert listener.heard == []


def test_raft_messages_are_passed_on_in_order() -> None:
    handle, listener = handler()

    reply = handle.handle(RaftRequest("ours", [encode(VOTE), encode(REPLY)]), NOTHING, 2)

    assert reply == RaftReply(1)
    assert listener.heard == [(VOTE, None), (REPLY, None)]


def test_raft_messages_without_a_reply_are_passed_on() -> None:
    handle, listener = handler()

    reply = handle.handle(RaftRequest("ours", [encode(VOTE)], is_answered=False), NOTHING, 2)

    assert reply is None
    assert listener.heard == [(VOTE, None)]


def test_a_node_of_another_cluster_is_refused() -> None:
    handle, listener = handler()

    with pytest.raises(InvalidRequestError, match="belongs to cluster ours, not to theirs"):
        handle.handle(RaftRequest("theirs", [encode(VOTE)]), NOTHING, 2)
    with pytest.raises(InvalidRequestError, match="belongs to cluster ours, not to theirs"):
        handle.handle_snapshot(piece(0, 1, cluster_id="theirs"), memoryview(b"x"), 2)

    assert not listener.heard


def test_a_request_with_a_malformed_message_is_refused_as_a_whole() -> None:
    handle, listener = handler()

    with pytest.raises(InvalidRequestError, match="not a message of Raft"):
        handle.handle(RaftRequest("ours", [encode(VOTE), b"nonsense"]), NOTHING, 2)

    assert not listener.heard


def test_entries_and_snapshots_that_no_node_can_read_are_refused() -> None:
    handle, listener = handler()

    with pytest.raises(InvalidRequestError, match="not an entry of the metadata"):
        handle.handle(RaftRequest("ours", [encode(VOTE), encode(APPEND)]), NOTHING, 2)
    with pytest.raises(InvalidRequestError, match="not an entry of the metadata"):
        handle.handle_snapshot(piece(0, len(UNREADABLE)), memoryview(UNREADABLE), 2)

    assert not listener.heard


@pytest.mark.parametrize(("field", "value"), [("term", 1 << 32), ("term", -1)])
def test_numbers_out_of_the_range_of_the_disk_are_no_message(field: str, value: int) -> None:
    handle, listener = handler()
    wrong = encode(msgspec.structs.replace(VOTE, **{field: value}))

    with pytest.raises(InvalidRequestError, match="not a message of Raft"):
        handle.handle(RaftRequest("ours", [wrong]), NOTHING, 2)

    assert not listener.heard


def test_a_snapshot_offer_without_data_is_ignored() -> None:
    handle, listener = handler()

    handle.handle(RaftRequest("ours", [encode(OFFER)]), NOTHING, 2)

    assert not listener.heard


def test_a_snapshot_is_passed_on_when_it_is_complete() -> None:
    handle, listener = handler()

    assert handle.handle_snapshot(piece(0, 7), memoryview(b"abcd"), 2) == RaftSnapshotReply(4)
    assert not listener.heard
    assert handle.handle_snapshot(piece(4, 7), memoryview(b"efg"), 2) == RaftSnapshotReply(7)

    assert listener.heard == [(OFFER, b"abcdefg")]


def test_a_snapshot_may_restart_from_its_first_piece() -> None:
    handle, listener = handler()
    handle.handle_snapshot(piece(0, 3), memoryview(b"x"), 2)

    handle.handle_snapshot(piece(0, 3), memoryview(b"abc"), 2)

    assert listener.heard == [(OFFER, b"abc")]


@pytest.mark.parametrize(
    ("request_", "data", "reason"),
    [
        (piece(4, 7), b"efg", "begins at 4, and 0 bytes were received"),
        (piece(0, 2), b"abc", "longer than the whole"),
        (piece(0, 1 << 40), b"abc", "too large"),
        (piece(0, -1), b"", "too large"),
        (piece(0, 3, VOTE), b"abc", "does not offer a snapshot"),
        (RaftSnapshotRequest("ours", b"nonsense", 0, 3), b"abc", "not a message of Raft"),
    ],
)
def test_a_snapshot_piece_out_of_order_is_refused(
    request_: RaftSnapshotRequest, data: bytes, reason: str
) -> None:
    handle, listener = handler()

    with pytest.raises(InvalidRequestError, match=reason):
        handle.handle_snapshot(request_, memoryview(data), 2)

    assert not listener.heard
