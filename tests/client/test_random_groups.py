"""Random runs of a group: members join, leave, crash and are slow; coordinators and leaders change.

Everything follows from a seed. In a gentle run no member crashes: then every record is processed
exactly once. In a rough run no record is skipped, and no commit moves a group back.
"""

from random import Random
from typing import cast

import pytest
import trio
from trio.testing import MockClock

from tests.client.fake_cluster import fronted_client
from tests.client.group_fixture import GroupFixture, consumer_of, group_fixture_of
from tidelog.client.consumer.consumer import Consumer
from tidelog.client.consumer.group.member import GroupMember
from tidelog.client.consumer.group.membership_protocol import MembershipProtocol
from tidelog.coordinator.groups.config import GroupConfig

PARTITION_COUNT = 5
RUN_S = 50.0
PATIENCE_S = 600.0
"""The slowest worker takes 0.2 s for a record, and may get a partition late."""
FAREWELL_S = 8.0
"""Seconds between times without a coordinator in a gentle run: a leaving member tries to say so for
5 s. If two such times were closer, its session would have to expire."""
AFTERWARDS_S = 30.0
"""No record is processed twice in this time either."""
QUICK = GroupConfig(
    heartbeat_interval_ms=1_000,
    waiting_interval_ms=300,
    session_timeout_ms=12_000,
    initial_rebalance_delay_ms=500,
    assignment_interval_ms=700,
    replacement_delay_ms=700,
    max_assignment_delay_ms=3_000,
)


class MemberRuns:
    """One group, and the faults of its members."""

    def __init__(self, fixture: GroupFixture, seed: int, *, is_rough: bool) -> None:
        self.fixture = fixture
        self.random = Random(seed)
        self.is_rough = is_rough
        self.given: list[tuple[int, int]] = []
        """Partition and offset of all processed records."""
        self.everything: set[tuple[int, int]] = set()
        """All records to process, known at the end."""
        self.is_over = False

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(self.employ, f"worker {number}")
            nursery.start_soon(self.disturb)
            async with self.fixture.client.producer() as producer:
                while trio.current_time() < RUN_S:
                    await trio.sleep(self.random.expovariate(2.0))
                    partition = self.random.randrange(PARTITION_COUNT)
                    await producer.send_many(
                        "orders", [b"x"] * self.random.randint(1, 20), partition=partition
                    )
            self.is_over = True
            self.everything = await self.all_records()
            with trio.move_on_after(PATIENCE_S):
                while not self.everything <= set(self.given):  # noqa: ASYNC110  (seen from outside)
                    await trio.sleep(1.0)
            await trio.sleep(AFTERWARDS_S)
            nursery.cancel_scope.cancel()

    async def all_records(self) -> set[tuple[int, int]]:
        """Return partition and offset of all records in the topic."""
        (described,) = await self.fixture.client.admin.describe_topics(["orders"])
        return {
            (each.partition, offset)
            for each in described.partitions
            for offset in range(each.high_watermark)
        }

    async def employ(self, name: str) -> None:
        """Run one member after the other; the last one for long."""
        instance_id = name if self.random.random() < 0.4 else None
        while True:
            await trio.sleep(self.random.uniform(0.0, 5.0))
            stay_s = 1e6 if self.is_over else self.random.expovariate(0.05)
            async with fronted_client(self.fixture.cluster, [1, 2, 3]) as client:
                consumer = consumer_of(
                    client, group_instance_id=instance_id, auto_commit_interval=1.0
                )
                if self.is_rough:
                    await self.stay_roughly(consumer, stay_s)
                else:
                    async with consumer:
                        with trio.move_on_after(stay_s):
                            await self.work(consumer)

    async def stay_roughly(self, consumer: Consumer, stay_s: float) -> None:
        """Leave without waiting for tasks, or without a leave request."""
        is_crash = self.random.random() < 0.5
        with trio.move_on_after(stay_s):
            async with consumer:
                try:
                    await self.work(consumer)
                finally:
                    if is_crash:
                        crash(consumer)

    async def work(self, consumer: Consumer) -> None:
        pace_s = self.random.choice([0.0, 0.001, 0.02, 0.2])
        is_by_batch = self.random.random() < 0.3
        if is_by_batch:
            async for batch in consumer.batches():
                await trio.sleep(pace_s)
                self.given.extend((batch.partition, offset) for offset in batch.offsets)
        async for record in consumer:
            await trio.sleep(pace_s)
            self.given.append((record.partition, record.offset))

    async def disturb(self) -> None:
        cluster, epoch = self.fixture.cluster, 0
        while not self.is_over:
            await trio.sleep(self.random.expovariate(0.1))
            match self.random.randrange(3):
                case 0:
                    cluster.controller_id = None
                    await trio.sleep(self.random.uniform(0.0, 3.0))
                    self.fixture.groups.fail_over(self.random.randint(1, 3))
                    if not self.is_rough:
                        await trio.sleep(FAREWELL_S)
                case 1:
                    epoch += 1
                    partition = self.random.randrange(PARTITION_COUNT)
                    cluster.leaders[partition] = (self.random.randint(1, 3), epoch)
                case _:
                    cluster.fronts[self.random.randint(1, 3)].break_connections()


def crash(consumer: Consumer) -> None:
    """End the tasks of a consumer's membership, like a crash, without a leave request."""
    member = cast("GroupMember", vars(consumer)["_member"])
    cast("trio.CancelScope", vars(member)["_scope"]).cancel()
    cast("MembershipProtocol", vars(member)["_membership"]).abandon()


@pytest.mark.parametrize("is_rough", [False, True], ids=["gentle", "rough"])
@pytest.mark.parametrize("seed", range(2))
async def test_a_group_processes_all_records_under_faults(
    autojump_clock: MockClock, seed: int, is_rough: bool
) -> None:
    async with group_fixture_of(
        autojump_clock, PARTITION_COUNT, node_ids=(1, 2, 3), config=QUICK
    ) as fixture:
        life = MemberRuns(fixture, seed, is_rough=is_rough)
        await life.run()

    assert set(life.given) == life.everything
    assert fixture.groups.moved_back_count == 0
    if not is_rough:
        assert fixture.groups.fenced == []
        assert len(life.given) == len(life.everything)
