"""Tests of the short path of a transaction: three syncs, and what a crash at any of them leaves."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial

import pytest
import trio
from trio.testing import MockClock

from tests.broker.broker_requests import create_topic
from tests.broker.world import World, settle
from tests.logstore.logs import records_in
from tests.simulation.transactions.requests import begin, commit, replica, stage
from tidelog.broker.server import Broker
from tidelog.broker.transactions import finished_parts
from tidelog.broker.transactions.append import UNCOMMITTED_MAX
from tidelog.coordinator.metadata.transaction_commands import RETIRED_MS
from tidelog.coordinator.metadata.transactions import Transactions
from tidelog.wire.messages.transactions import StagedPart
from tidelog.wire.transport.rpc import RpcConnection

PARTITIONS = 2


def values(broker: Broker, number: int = 0) -> list[bytes]:
    """Return the committed values of a partition."""
    log, end = replica(broker, number=number).log, replica(broker, number=number).high_watermark
    found: list[bytes] = []
    offset = log.log_start_offset
    while (part := log.read(offset, max_bytes=1 << 20, high_watermark=end)) is not None:
        records = records_in(part.read())
        found += records.values()
        offset = max(records) + 1
    return found


def transactions(broker: Broker) -> Transactions:
    assert broker._cluster is not None
    return broker._cluster.metadata.state.transactions


async def pass_time(world: World, seconds: int) -> None:
    """Let time pass in steps that are shorter than a round of checkpoints."""
    for _ in range(10 * seconds):
        await world.pass_time(0.1)


async def get_level(world: World, broker: Broker) -> None:
    """Wait for the first feature level of the new cluster."""
    assert broker._cluster is not None
    while not broker._cluster.metadata.state.feature_level:
        await world.pass_time(0.1)


@dataclass
class Writer:
    """Writes transactions of one name to all partitions, each with the number of the last reply."""

    client: RpcConnection
    topic_id: bytes
    broker: Broker
    name: str = "job"
    number: int = 0
    count: int = 0
    """Transactions that were answered."""
    sequences: dict[int, int] = field(default_factory=dict[int, int])

    async def write(self) -> None:
        """Stage two records for each partition, and commit them."""
        if not self.number:
            self.number = (await begin(self.client, self.count, name=self.name)).number
        parts: list[StagedPart] = []
        for partition in range(PARTITIONS):
            sequence = self.sequences.get(partition, 0)
            staging = replica(self.broker, "staged@orders", partition)
            pair = [b"%d-%d" % (self.count, each) for each in range(2)]
            piece = await stage(self.client, staging, self.number, *pair, sequence=sequence)
            self.sequences[partition] = sequence + 2
            parts.append(StagedPart(self.topic_id, partition, [piece]))
        reply = await commit(
            self.client,
            self.number,
            *parts,
            name=self.name,
            transaction_id=self.count,
            begins_next=True,
        )
        self.number = reply.next_number
        self.count += 1


def expected(count: int) -> list[bytes]:
    return [b"%d-%d" % (number, each) for number in range(count) for each in range(2)]


async def test_a_transaction_in_one_partition_takes_three_syncs_and_no_rename(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await get_level(world, broker)
        topic_id = await create_topic(client, durability="fsync")
        number, before = (await begin(client)).number, 0
        for transaction_id in range(10):
            if transaction_id == 2:
                before = len(world.disk.calls)
            staging = replica(broker, "staged@orders")
            piece = await stage(client, staging, number, b"v", sequence=transaction_id)
            reply = await commit(
                client,
                number,
                StagedPart(topic_id, 0, [piece]),
                transaction_id=transaction_id,
                begins_next=True,
            )
            number = reply.next_number
        done = [str(call[0]) for call in world.disk.calls[before:]]

        assert done.count("sync") == 3 * 8
        assert not {"rename", "replace", "sync_directory", "create"} & set(done)
        assert len(values(broker)) == 10


async def test_transactions_with_pauses_add_only_checkpoints_of_their_partition(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await get_level(world, broker)
        topic_id = await create_topic(client, durability="fsync")
        number, before = (await begin(client)).number, 0
        for transaction_id in range(10):
            if transaction_id == 2:
                before = len(world.disk.calls)
            staging = replica(broker, "staged@orders")
            piece = await stage(client, staging, number, b"v", sequence=transaction_id)
            part = StagedPart(topic_id, 0, [piece])
            reply = await commit(
                client, number, part, transaction_id=transaction_id, begins_next=True
            )
            number = reply.next_number
            await pass_time(world, 3)
        done = [call for call in world.disk.calls[before:] if str(call[0]) in {"sync", "rename"}]
        assert len([call for call in done if "staged@orders" in str(call)]) == 8
        assert len([call for call in done if "metadata" in str(call)]) == 8
        assert len(done) == 8 * 5, "one sync and one checkpoint of the partition"


async def test_a_staging_log_gets_an_idle_checkpoint_while_its_records_are_needed(
    mock_clock: MockClock,
) -> None:
    """The checkpoint tells damage from the end of a log that a crash has cut."""
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await get_level(world, broker)
        topic_id = await create_topic(client, durability="fsync")
        number = (await begin(client)).number
        staging = replica(broker, "staged@orders")
        other = (await begin(client, name="other")).number
        piece = await stage(client, staging, number, b"v")
        await pass_time(world, 3)
        assert not staging.log.is_checkpoint_behind, "nothing is committed"

        await stage(client, staging, other, b"open", producer_id=2)
        await commit(client, number, StagedPart(topic_id, 0, [piece]))
        await pass_time(world, 3)
        assert not staging.log.is_checkpoint_behind, "one is open"

        piece = await stage(client, staging, other, b"last", producer_id=2, sequence=1)
        await commit(client, other, StagedPart(topic_id, 0, [piece]), name="other")
        await pass_time(world, 3)
        assert staging.log.is_checkpoint_behind, "all are appended"


async def test_a_commit_is_answered_before_it_is_recorded_as_appended(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await get_level(world, broker)
        writer = Writer(client, await create_topic(client, partitions=PARTITIONS), broker)
        for _ in range(3):
            await writer.write()
            assert transactions(broker).pending_count == 1, "it is recorded with the next commit"

        await world.pass_time(finished_parts._REPORTED_S)
        assert transactions(broker).pending_count == 0
        assert values(broker) == values(broker, 1) == expected(3)


async def test_an_answered_commit_survives_a_crash_before_it_is_recorded(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.doomed_broker() as broker, world.client() as client:
        await get_level(world, broker)
        writer = Writer(client, await create_topic(client, partitions=PARTITIONS), broker)
        await writer.write()
        assert transactions(broker).pending_count == 1
    world = world.after_crash()
    async with world.broker() as broker:
        while transactions(broker).pending_count:
            await world.pass_time(0.1)

        assert values(broker) == values(broker, 1) == expected(1)


@pytest.mark.parametrize("first", range(8))
async def test_a_power_cut_at_any_call_of_the_disk_loses_nothing_and_shows_no_half(
    mock_clock: MockClock, first: int
) -> None:
    """All acknowledged transactions exist once, and the next one as a whole or not at all."""
    for calls in range(first, 64, 8):
        world = World(mock_clock)
        async with world.doomed_broker() as broker, world.client() as client:
            await get_level(world, broker)
            topic_id = await create_topic(client, partitions=PARTITIONS, durability="fsync")
            writer = Writer(client, topic_id, broker)
            await writer.write()
            await _run_until(world, len(world.disk.calls) + calls, writer.write)
        await _check_after_power_cut(world, writer.count, seed=calls)


async def _run_until(world: World, calls: int, write: Callable[[], Awaitable[None]]) -> None:
    """Write transactions until the disk has had so many calls."""

    async def write_all() -> None:
        while True:
            await write()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write_all)
        while len(world.disk.calls) < calls:
            await trio.lowlevel.checkpoint()
        nursery.cancel_scope.cancel()


async def _check_after_power_cut(world: World, count: int, *, seed: int) -> None:
    world = world.after_power_cut(seed)
    async with world.broker() as broker, world.client() as client:
        await settle()
        while transactions(broker).pending_count:
            await world.pass_time(0.1)
        known = transactions(broker).names["job"]
        assert known.last_transaction_id is not None
        done = known.last_transaction_id + 1
        assert done in {count, count + 1}
        assert values(broker) == values(broker, 1) == expected(done)

        # Another process goes on behind the last committed transaction.
        topic_id = replica(broker).topic_id
        writer = Writer(client, topic_id, broker, count=done)
        writer.sequences = dict.fromkeys(range(PARTITIONS), 1 << 20)
        number = (await begin(client, done)).number
        pieces = [
            await stage(
                client, replica(broker, "staged@orders", each), number, b"after", producer_id=9
            )
            for each in range(PARTITIONS)
        ]
        parts = [StagedPart(topic_id, at, [piece]) for at, piece in enumerate(pieces)]
        await commit(client, number, *parts, transaction_id=done)
        assert values(broker) == values(broker, 1) == [*expected(done), b"after"]


async def test_commits_of_a_partition_share_the_syncs_of_their_appends(
    mock_clock: MockClock,
) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await get_level(world, broker)
        topic_id = await create_topic(client, durability="fsync")
        names = [f"job-{at}" for at in range(UNCOMMITTED_MAX)]
        numbers = [(await begin(client, name=name)).number for name in names]
        log = replica(broker, "staged@orders")
        pieces = [
            await stage(client, log, number, b"%d" % at, producer_id=at + 1)
            for at, number in enumerate(numbers)
        ]
        await commit(client, numbers[0], StagedPart(topic_id, 0, [pieces[0]]), name="job-0")
        partition = replica(broker)
        before = partition.flushes_begun

        async with trio.open_nursery() as nursery:
            for at in range(1, UNCOMMITTED_MAX):
                part = StagedPart(topic_id, 0, [pieces[at]])
                nursery.start_soon(partial(commit, client, numbers[at], part, name=names[at]))

        assert sorted(values(broker)) == sorted(b"%d" % at for at in range(UNCOMMITTED_MAX))
        assert partition.flushes_begun - before <= 2, "they share a sync"


async def test_a_name_without_a_next_transaction_is_forgotten(mock_clock: MockClock) -> None:
    world = World(mock_clock)
    async with world.broker() as broker, world.client() as client:
        await get_level(world, broker)
        await create_topic(client)
        number = (await begin(client, name="drawn")).number
        await commit(client, number, name="drawn", is_last=True)
        assert (await commit(client, number, name="drawn", is_last=True)).was_committed

        await world.pass_time(RETIRED_MS / 1000 - 1)
        assert "drawn" in transactions(broker).names
        while "drawn" in transactions(broker).names:
            await world.pass_time(0.5)
