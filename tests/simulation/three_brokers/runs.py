"""Random runs of three brokers: machines crash, pause, lose power and connections.

Two writers record acknowledgements. At the end all faults are healed, and every acknowledged
record is on every replica, once, at its offset.
"""

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import final

import trio

from tests.broker.replication.three_brokers import (
    NODES,
    TOPIC,
    Acknowledged,
    ThreeBrokers,
    host_of,
    make_topic,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.world import Simulation, World
from tidelog.client.client import Client
from tidelog.wire.errors import TidelogError, TopicExistsError

ATTACKS = 8
PARTITION_COUNT = 3
_LONGEST_PAUSE_S = 15.0
_COUNTED = {"replica_truncated", "in_sync_replicas_changed", "replica_append_failed"}


@final
class Writer:
    """Sends one record after the other, and records acknowledgements."""

    def __init__(self, name: str = "") -> None:
        self.acknowledged: dict[tuple[int, int], bytes] = {}
        """Values by partition and offset."""
        self.should_stop = False
        self._name = name.encode()
        self._count = 0

    def of(self, number: int) -> Acknowledged:
        """Return the acknowledged records of one partition."""
        return {
            offset: value
            for (partition, offset), value in self.acknowledged.items()
            if partition == number
        }

    async def run(self, client: Client) -> None:
        async with client.producer(delivery_timeout=5) as producer:
            while not self.should_stop:
                self._count += 1
                value = b"order %d %s" % (self._count, self._name)
                try:
                    receipt = await producer.send(TOPIC, value, key=value)
                except TidelogError:
                    await trio.sleep(0.1)  # The record may be in the log, or not.
                    continue
                assert receipt.offset is not None
                place = (receipt.partition, receipt.offset)
                assert place not in self.acknowledged, "one offset for two records"
                self.acknowledged[place] = value
                await trio.sleep(0.005)


@final
class FaultInjector:
    """Injects a fault every now and then."""

    def __init__(self, brokers: ThreeBrokers, random: Random) -> None:
        self._brokers = brokers
        self._random = random
        self._heals: list[Callable[[], None]] = []
        self.counts: Counter[str] = Counter()
        self._faults: tuple[Callable[[int], None], ...] = (
            brokers.kill,
            brokers.cut_power,
            self._pause,
            lambda node: self._cut_off(node, one_way=False),
            lambda node: self._cut_off(node, one_way=True),
            self._stop,
            self._stall,
            lambda _: self._heal(),
            lambda _: self._start_all(),
            lambda _: self._start_all(),
            lambda _: brokers.cut_power(*NODES),
        )

    async def run(self, attack_count: int) -> None:
        """Inject so many faults, then heal all."""
        for _ in range(attack_count):
            await trio.sleep(self._random.expovariate(0.7))
            node = self._random.choice(NODES)
            if self._random.random() < 0.4:
                node = self._brokers.leader() or node
            self._random.choice(self._faults)(node)
        self._heal()
        await trio.sleep(_LONGEST_PAUSE_S + 1)
        with trio.fail_after(90):
            while not all(
                self._brokers.in_sync(number) == set(NODES) for number in range(PARTITION_COUNT)
            ):
                self._start_all()  # A broker that is stopping may take its time.
                await trio.sleep(0.1)

    def _pause(self, node: int) -> None:
        if self._brokers.machines[node].process is not None:
            self._brokers.machines[node].pause(self._random.uniform(0.5, _LONGEST_PAUSE_S))

    def _stall(self, node: int) -> None:
        self._brokers.machines[node].stall_disk(self._random.uniform(0.1, 5))

    def _stop(self, node: int) -> None:
        if node in self._brokers.brokers:
            self._brokers.stop(node)

    def _cut_off(self, node: int, *, one_way: bool) -> None:
        others = [host_of(other) for other in NODES if other != node]
        network = self._brokers.world.network
        self._heals.append(network.partition([host_of(node)], others, one_way=one_way))

    def _heal(self) -> None:
        for heal in self._heals:
            heal()
        self._heals.clear()

    def _start_all(self) -> None:
        down = [node for node in NODES if self._brokers.machines[node].process is None]
        if down:
            self._brokers.start(*down)


def run_three_brokers(seed: int, *, attack_count: int = ATTACKS) -> Counter[str]:
    """Execute one run; return counts of its events and acknowledgements."""
    counts: Counter[str] = Counter()

    def observe(node: str, event: str, fields: Mapping[str, object]) -> None:
        del node, fields
        if event in _COUNTED:
            counts[event] += 1

    async def run(world: World) -> None:
        random = world.streams.stream("faults")
        world.network.set_quality(
            LinkQuality(
                delay_mean_s=0.002,
                loss=random.choice((0, 0.01)),
                reset=random.choice((0, 0.001)),
            )
        )
        world.observe(observe)
        brokers = ThreeBrokers(world, replica_lag_time_max_ms=random.choice((500, 10_000)))
        brokers.start()
        await brokers.serve()
        writers = [Writer("of one"), Writer("of the other")]
        await _write_and_suffer(
            brokers, writers, FaultInjector(brokers, random), attack_count=attack_count
        )
        for number in range(PARTITION_COUNT):
            one, other = (writer.of(number) for writer in writers)
            assert not one.keys() & other.keys(), "one offset for two records"
            await brokers.check(one | other, number)
            counts["acknowledged"] += len(one) + len(other)

    Simulation(seed).run(run)
    return counts


async def _write_and_suffer(
    brokers: ThreeBrokers,
    writers: list[Writer],
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
        await until(lambda: all(len(writer.acknowledged) >= 5 for writer in writers), 60)
        await fault_injector.run(attack_count)
        for writer in writers:
            writer.should_stop = True
