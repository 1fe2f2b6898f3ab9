"""Random runs of transactions while brokers crash, pause, lose power and connections.

`tests.simulation.broker.transactions` defines the writers, and the expected contents at the end.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress

import trio

from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, make_topic
from tests.coordinator.raft_clients import until
from tests.simulation.broker.transactions import Contents, Ledger, TransactionWriter
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.world import Simulation, World
from tests.simulation.three_brokers.runs import PARTITION_COUNT, FaultInjector
from tidelog.client.client import Client
from tidelog.coordinator.metadata.transaction_commands import NEXT_MS
from tidelog.wire.errors import TopicExistsError

ATTACKS = 8
STAGED_TOPIC = f"staged@{TOPIC}"
_BATCHES_AFTER = 2
"""Batches that each writer commits after the faults."""
_DELETED_S = 3 * NEXT_MS / 1000
"""A new leader keeps staged records while a transaction is open that a commit has begun before.
They are deleted up to a minute later."""
_COUNTED = {"replica_truncated", "staged_part_waits", "staged_records_lost"}


def run_transactions(seed: int, *, attack_count: int = ATTACKS) -> Counter[str]:
    """Execute one run; return counts of its events and of committed transactions."""
    counts: Counter[str] = Counter()

    def observe(node: str, event: str, fields: Mapping[str, object]) -> None:
        del node, fields
        if event in _COUNTED:
            counts[event] += 1

    async def run(world: World) -> None:
        random = world.streams.stream("faults")
        quality = LinkQuality(
            delay_mean_s=0.002, loss=random.choice((0, 0.01)), reset=random.choice((0, 0.001))
        )
        world.network.set_quality(quality)
        world.observe(observe)
        world.buggify.site_rate, world.buggify.fire_rate = 0.5, 0.2
        brokers = ThreeBrokers(world, replica_lag_time_max_ms=random.choice((500, 10_000)))
        brokers.start()
        await brokers.serve()
        ledger = Ledger()
        writers = [
            TransactionWriter(
                name,
                world.streams.stream(name),
                ledger,
                topic=TOPIC,
                partition_count=PARTITION_COUNT,
            )
            for name in ("one", "other")
        ]
        await _stage_and_suffer(
            brokers, writers, FaultInjector(brokers, random), attack_count=attack_count
        )
        await until(lambda: _staged_count(brokers) == 0, _DELETED_S)
        found: Contents = {}
        for number in range(PARTITION_COUNT):
            await brokers.check({}, number)
            records = brokers.records(NODES[0], number)
            found[number] = [records[at] for at in sorted(records)]
        ledger.check(found)
        counts["committed"] += len(ledger.committed)
        counts["dropped"] += len(ledger.dropped)

    Simulation(seed).run(run)
    return counts


async def _stage_and_suffer(
    brokers: ThreeBrokers,
    writers: list[TransactionWriter],
    fault_injector: FaultInjector,
    *,
    attack_count: int,
) -> None:
    async def write(client: Client) -> None:
        with suppress(TopicExistsError):  # The first reply may be lost.
            await make_topic(client, PARTITION_COUNT)
        async with trio.open_nursery() as nursery:
            for writer in writers:
                nursery.start_soon(writer.run, client)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(brokers.with_client, write)
        await until(lambda: all(writer.count >= 2 for writer in writers), 60)
        await fault_injector.run(attack_count)
        wanted = [writer.count + _BATCHES_AFTER for writer in writers]
        await until(
            lambda: all(
                writer.count >= count for writer, count in zip(writers, wanted, strict=True)
            ),
            240,
        )
        for writer in writers:
            writer.should_stop = True


def _staged_count(brokers: ThreeBrokers) -> int:
    """Return the number of records in staging logs at their leaders; -1 if one has no leader."""
    count = 0
    for number in range(PARTITION_COUNT):
        leader = brokers.leader(STAGED_TOPIC, number)
        replica = None if leader is None else brokers.partition(leader, STAGED_TOPIC, number)
        if replica is None:
            return -1
        count += replica.log.log_end_offset - replica.log.log_start_offset
    return count
