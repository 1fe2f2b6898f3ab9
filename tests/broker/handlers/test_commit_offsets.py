"""Tests of COMMIT_OFFSETS: a commit is answered once, when it is stored or refused."""

from typing import cast

from tests.broker.requests.test_response import FakeContext
from tests.coordinator.group_cluster import GROUP, ORDERS, GroupCluster, play
from tests.coordinator.raft_clients import until
from tidelog.broker.handlers.commit_offsets import CommitHandler
from tidelog.broker.requests.response import ResponseHandle
from tidelog.wire.errors import (
    ErrorCode,
    ErrorDetail,
)
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    PartitionCommit,
    PartitionCommitted,
)
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import AnyApi
from tidelog.wire.protocol.connection import Request
from tidelog.wire.protocol.frame import FrameDecoder, FrameKind


async def answer(
    handler: CommitHandler, partition: int, *, member_id: str = ""
) -> CommitOffsetsReply | ErrorDetail:
    """Handle one commit as a request that arrived on a connection."""
    commit = PartitionCommit(ORDERS, partition, 7)
    message = CommitOffsetsRequest(GROUP, member_id, -1, 1, [commit])
    context = FakeContext()
    request = Request(api.ApiKey.COMMIT_OFFSETS, 1, 7, message, memoryview(b""))
    response = ResponseHandle(cast("AnyApi", api.COMMIT_OFFSETS), request, context)
    with response:
        handler.handle(message, response)
    await until(lambda: context.answered_count > 0)
    assert context.answered_count == 1
    decoder = FrameDecoder(max_frame_bytes=1 << 20)
    sent = bytes(context.stream.sent)
    decoder.get_buffer()[: len(sent)] = sent
    decoder.bytes_received(len(sent))
    frame = decoder.next_frame()
    assert frame is not None
    if frame.kind is FrameKind.ERROR:
        return api.decode_error(frame.header)
    return api.COMMIT_OFFSETS.decode_reply(frame.header)


def test_a_commit_is_answered_when_it_is_stored() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, _ = await cluster.leader_and_another()
        handler = CommitHandler(cluster.coordinators[leader.node_id])

        answered = await answer(handler, 0)

        assert answered == CommitOffsetsReply([PartitionCommitted(None)])
        assert await cluster.committed(0) == 7

    play(story)


def test_a_refused_commit_is_answered_at_any_time() -> None:
    async def story(cluster: GroupCluster) -> None:
        leader, other = await cluster.leader_and_another()
        codes: list[int] = []
        for host in (leader, other):
            handler = CommitHandler(cluster.coordinators[host.node_id])
            detail = await answer(handler, 0, member_id="unknown")
            assert isinstance(detail, ErrorDetail)
            codes.append(detail.code)

        assert codes == [ErrorCode.UNKNOWN_MEMBER, ErrorCode.NOT_CONTROLLER]

    play(story)
