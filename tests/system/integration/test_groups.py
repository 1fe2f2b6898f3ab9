"""Tests of consumer groups on real brokers: a single one, and three whose controller is killed."""

import signal
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TypeVar, final

import pytest
import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S, serving
from tidelog.wire.env.real.real_env import real_env
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    ErrorCode,
    GroupNotEmptyError,
    InvalidRequestError,
    UnknownMemberError,
)
from tidelog.wire.messages.groups import (
    CommitOffsetsReply,
    CommitOffsetsRequest,
    DeleteGroupRequest,
    DescribedGroup,
    DescribeGroupsRequest,
    FetchOffsetsRequest,
    GroupHeartbeatReply,
    GroupHeartbeatRequest,
    ListGroupsRequest,
    PartitionCommit,
    PartitionReset,
    PartitionWasReset,
    ResetOffsetsRequest,
    ResetTo,
    Subscription,
    TopicPartitions,
)
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.protocol.api import Api
from tidelog.wire.transport.rpc import RpcConnection, open_rpc

GROUP = "billing"
TOPIC = "orders"
RECORDS = 100
"""Records in each of two partitions; their timestamps are a second apart and an hour old."""
PARTITIONS = 2

Request = TypeVar("Request")
Reply = TypeVar("Reply")


@final
class Wire:
    """Sends requests about one group to a broker, message by message."""

    def __init__(self, connection: RpcConnection, topic_id: bytes) -> None:
        self._connection = connection
        self.topic_id = topic_id

    async def ask(self, api_: Api[Request, Reply], request: Request) -> Reply:
        return await self._connection.ask(api_, request)

    async def heartbeat(
        self, member_id: str, epoch: int = 0, revision: int = 0
    ) -> GroupHeartbeatReply:
        subscription = Subscription([TOPIC]) if epoch == 0 else None
        owned: list[TopicPartitions] | None = [] if epoch == 0 else None
        request = GroupHeartbeatRequest(GROUP, member_id, epoch, revision, owned, subscription)
        return await self.ask(api.GROUP_HEARTBEAT, request)

    async def commit(
        self, offset: int, *, partition: int = 0, member_id: str = "", epoch: int = -1
    ) -> CommitOffsetsReply:
        offsets = [PartitionCommit(self.topic_id, partition, offset)]
        request = CommitOffsetsRequest(GROUP, member_id, epoch, offset, offsets)
        return await self.ask(api.COMMIT_OFFSETS, request)

    async def committed(self) -> list[int | None]:
        wanted = [TopicPartitions(self.topic_id, list(range(PARTITIONS)))]
        reply = await self.ask(api.FETCH_OFFSETS, FetchOffsetsRequest(GROUP, wanted))
        return [one.offset for one in reply.offsets]

    async def described(self) -> DescribedGroup:
        return (await self.ask(api.DESCRIBE_GROUPS, DescribeGroupsRequest([GROUP]))).groups[0]

    async def reset(
        self, to: ResetTo, value: int = 0, *, validate_only: bool = False
    ) -> list[PartitionWasReset]:
        resets = [
            PartitionReset(self.topic_id, partition, int(to), value)
            for partition in range(PARTITIONS)
        ]
        request = ResetOffsetsRequest(GROUP, resets, validate_only)
        return (await self.ask(api.RESET_OFFSETS, request)).results


@asynccontextmanager
async def wire_to(address: str) -> AsyncGenerator[Wire, None]:
    host, port = address.split(":")
    async with open_rpc(
        real_env().network, host, int(port), client_id="test", client_version="0"
    ) as connection:
        metadata = await connection.ask(api.METADATA, MetadataRequest([TOPIC]))
        yield Wire(connection, metadata.topics[0].topic_id)


async def fill(address: str) -> int:
    """Create a topic with records; return the timestamp of the first one."""
    began_ms = real_env().clock.now_ms() - 3_600_000
    async with tidelog.connect(address) as client:
        await client.admin.create_topic(TOPIC, partitions=PARTITIONS)
        async with client.producer() as producer:
            for number in range(RECORDS):
                for partition in range(PARTITIONS):
                    producer.send_nowait(
                        TOPIC, b"x", partition=partition, timestamp_ms=began_ms + number * 1000
                    )
    return began_ms


async def test_a_member_joins_reads_commits_and_leaves(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker.address)
        async with wire_to(broker.address) as wire:
            reply = await wire.heartbeat("a")
            while reply.assignment is None or not reply.assignment:
                await trio.sleep(reply.heartbeat_interval_ms / 1000)
                reply = await wire.heartbeat("a", reply.member_epoch, reply.assignment_revision)
            epoch = reply.member_epoch
            done = await wire.commit(40, member_id="a", epoch=epoch)
            refused = [
                (await wire.commit(offset, member_id="a", epoch=epoch)).results[0].error
                for offset in (RECORDS + 1, 10**15)
            ]
            group = await wire.described()

            assert reply.assignment[0].topic == TOPIC
            assert reply.assignment[0].partitions == [0, 1]
            assert done.results[0].error is None
            assert [one.code for one in refused if one] == [ErrorCode.OFFSET_OUT_OF_RANGE] * 2
            assert "has 0 to 100" in str(refused[0])
            assert (group.state, len(group.members)) == ("stable", 1)
            first, second = group.partitions
            assert (first.offset, first.lag_records, first.member_id) == (40, 60, "a")
            assert first.lag_ms is not None
            assert 3_600_000 - 41_000 <= first.lag_ms <= 3_600_000 + 60_000
            assert (second.offset, second.high_watermark) == (None, RECORDS)
            with pytest.raises(GroupNotEmptyError, match="only they can commit"):
                await wire.commit(41)
            with pytest.raises(GroupNotEmptyError, match="stop them first"):
                await wire.reset(ResetTo.EARLIEST)
            with pytest.raises(GroupNotEmptyError, match="stop them first"):
                await wire.ask(api.DELETE_GROUP, DeleteGroupRequest(GROUP))
            with pytest.raises(InvalidRequestError, match="cannot know of"):
                await wire.heartbeat("a", epoch + 1)
            await wire.heartbeat("a", -1)
            with pytest.raises(UnknownMemberError, match="it was fenced or has left"):
                await wire.heartbeat("a", epoch)
            assert await wire.committed() == [40, None]


async def test_the_offsets_of_an_empty_group_are_set_listed_and_deleted(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        began_ms = await fill(broker.address)
        async with wire_to(broker.address) as wire:
            assert await wire.committed() == [None, None]
            moved: list[list[int | None]] = []
            for to, value in [
                (ResetTo.LATEST, 0),
                (ResetTo.EARLIEST, 0),
                (ResetTo.OFFSET, 17),
                (ResetTo.SHIFT, 5),
                (ResetTo.SHIFT, -50),
                (ResetTo.TIMESTAMP, began_ms + 30_500),
                (ResetTo.TIMESTAMP, began_ms + 10_000_000),
            ]:
                tried = await wire.reset(to, value, validate_only=True)
                done = await wire.reset(to, value)
                assert tried == done
                moved.append(await wire.committed())
            beyond = await wire.reset(ResetTo.OFFSET, RECORDS + 1)
            listed = (await wire.ask(api.LIST_GROUPS, ListGroupsRequest(["empty"]))).groups

            assert moved == [[n, n] for n in (100, 0, 17, 22, 0, 31, 100)]
            assert [one.error and one.error.code for one in beyond] == [
                ErrorCode.OFFSET_OUT_OF_RANGE
            ] * 2
            assert await wire.committed() == [100, 100]
            assert [(one.group_id, one.member_count) for one in listed] == [(GROUP, 0)]
            assert (await wire.ask(api.DELETE_GROUP, DeleteGroupRequest(GROUP))).was_there
            assert await wire.committed() == [None, None]
            error = (await wire.described()).error
            assert error is not None
            assert error.code == ErrorCode.UNKNOWN_GROUP


async def test_committed_offsets_survive_a_kill(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        await fill(broker.address)
        async with wire_to(broker.address) as wire:
            for offset in range(1, 51):
                await wire.commit(offset)
        broker.signal(signal.SIGKILL)
        await broker.wait_ended()

    async with serving(tmp_path) as broker, wire_to(broker.address) as wire:
        assert await wire.committed() == [50, None]


@final
class Reading:
    """All records that the members of a group have read."""

    def __init__(self) -> None:
        self.seen: Counter[tuple[int, int]] = Counter()
        self._has_more = trio.Event()

    async def member(self, addresses: str) -> None:
        async with (
            tidelog.connect(addresses) as client,
            client.consumer(TOPIC, group_id=GROUP, auto_offset_reset="earliest") as consumer,
        ):
            async for record in consumer:
                self.seen[record.partition, record.offset] += 1
                more, self._has_more = self._has_more, trio.Event()
                more.set()

    async def until(self, count: int) -> None:
        """Wait until `count` different records were read."""
        while len(self.seen) < count:
            await self._has_more.wait()


async def controller_id(nodes: Nodes) -> int:
    """Return the controller's node id."""
    while True:
        for number in nodes.ids:
            try:
                async with wire_to(nodes.address(number)) as wire:
                    found = await wire.ask(api.METADATA, MetadataRequest([]))
            except (BrokerError, ConnectionLostError):
                continue
            if found.controller_id is not None:
                return found.controller_id
        await trio.sleep(0.05)


async def test_a_group_continues_when_the_controller_is_killed(tmp_path: Path) -> None:
    with trio.fail_after(DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(tmp_path, nursery)
            await nodes.start(1, 2, 3)
            reading = Reading()
            async with tidelog.connect(nodes.addresses) as client:
                await client.admin.create_topic(TOPIC, partitions=6)
                for _ in range(3):
                    nursery.start_soon(reading.member, nodes.addresses)
                sent = 0
                async with client.producer() as producer:
                    for _ in range(2):
                        for number in range(60):
                            await producer.send(TOPIC, b"x", partition=number % 6)
                        sent += 60
                        await reading.until(sent)
                        node_id = await controller_id(nodes)
                        nodes.kill(node_id)
                        await nodes.start(node_id)
                        await reading.until(sent)
            # Each was read, and nearly all of them once, because commits were kept.
            assert len(reading.seen) == sent
            assert reading.seen.total() < 2 * sent
            nursery.cancel_scope.cancel()
