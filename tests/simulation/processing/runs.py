"""Random runs of processors while their machines and brokers crash, pause and are cut off.

Processors of one group copy records of one topic into another. Some runs have processors as well
that read the same partitions without the group, as zombies do that have not heard of a rebalance.
At the end each input record was copied exactly once, and in order.
"""

import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import Final, final

import trio

from tests.broker.replication.three_brokers import (
    NODES,
    PORT,
    TOPIC,
    ThreeBrokers,
    host_of,
    make_topic,
)
from tests.coordinator.raft_clients import until
from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.machine.link import LinkQuality
from tests.simulation.machine.node import Node
from tests.simulation.machine.process import Process, Program
from tests.simulation.machine.world import Simulation, World
from tests.simulation.three_brokers.runs import PARTITION_COUNT, FaultInjector
from tidelog.client.client import Client, connect
from tidelog.client.consumer.fetch.record import Record
from tidelog.client.processing.processor import Processor
from tidelog.client.producer.producer_record import ProducerRecord
from tidelog.wire.errors import TidelogError, TopicExistsError

ATTACKS: Final = 6
NAME: Final = "copier"
COPIES: Final = "copies"
_PROCESSOR_COUNT: Final = 3
_PROCESSOR_ATTACKS: Final = 8
_STRAY: Final = 0.4
"""Fraction of the processors' starts without the group."""
_LONGEST_PAUSE_S: Final = 25.0
_AFTER: Final = 30
"""Records that are written after the faults."""
_PACE_S: Final = 0.05
_PATIENCE_S: Final = 240.0
_COUNTED: Final = {"processor.begun_again", "group.lost"}


@final
class Processors:
    """Processors on machines of their own, which are started again when they have ended."""

    def __init__(self, world: World, random: Random, *, has_strays: bool) -> None:
        self.counts: Counter[str] = Counter()
        self._random = random
        self._has_strays = has_strays
        self._should_stop = False
        self._machines = [world.add_node(f"processor{each}") for each in range(_PROCESSOR_COUNT)]
        self._network = world.network
        self._running: set[Processor] = set()
        self._strays: set[str] = set()
        """Machines whose processor is not in the group."""

    async def attack(self) -> None:
        """Kill, pause and cut off processors."""
        heals: list[Callable[[], None]] = []
        for _ in range(_PROCESSOR_ATTACKS):
            await trio.sleep(self._random.expovariate(0.4))
            machine = self._random.choice(self._machines)
            match self._random.randrange(4):
                case 0:
                    machine.kill()
                case 1 | 2:
                    if machine.process is not None:
                        machine.pause(self._random.uniform(0.1, _LONGEST_PAUSE_S))
                case _:
                    brokers = [host_of(node) for node in NODES]
                    heals.append(self._network.partition([machine.name], brokers, one_way=False))
                    if len(heals) > 1:
                        heals.pop(0)()
            self.start()
        for heal in heals:
            heal()
        await trio.sleep(_LONGEST_PAUSE_S + 1)
        self.start()
        if all(machine.name in self._strays for machine in self._machines):
            self._machines[0].kill()  # No member may be left for some partition.
            self._start(self._machines[0], is_stray=False)

    def start(self) -> None:
        """Start the processors that do not run."""
        for machine in self._machines:
            if machine.process is None:
                is_stray = self._has_strays and self._random.random() < _STRAY
                self._start(machine, is_stray=is_stray)

    def _start(self, machine: Node, *, is_stray: bool) -> None:
        self._strays.discard(machine.name)
        if is_stray:
            self._strays.add(machine.name)
        machine.start(self._program(is_stray=is_stray))

    async def stop(self) -> None:
        """Stop all processors in order."""
        self._should_stop = True
        for processor in self._running:
            processor.stop()
        await until(lambda: all(machine.process is None for machine in self._machines), 120)

    def _program(self, *, is_stray: bool) -> Program:
        partition = self._random.randrange(PARTITION_COUNT) if is_stray else None
        interval = self._random.choice((0.0, 0.1, 1.0))

        async def run(process: Process) -> None:
            addresses = ",".join(f"{host_of(node)}:{PORT}" for node in NODES)
            while not self._should_stop:
                with suppress(TidelogError, trio.ClosedResourceError):
                    async with connect(addresses, env=process.env, request_timeout=10) as client:
                        await self._process(client, partition, interval)
                await trio.sleep(0.2)

        return run

    async def _process(self, client: Client, partition: int | None, interval: float) -> None:
        processor = client.processor(
            TOPIC,
            _copied,
            name=NAME,
            partitions=None if partition is None else [partition],
            commit_interval=interval,
            max_records=20,
        )
        self._running.add(processor)
        try:
            await processor.run()
        finally:
            self._running.discard(processor)
            self.counts["transactions"] += processor.statistics.transaction_count


def _copied(record: Record) -> ProducerRecord:
    value = b"%d/%d" % (record.partition, record.offset)
    return ProducerRecord(COPIES, value, key=b"%d" % (record.offset % 7))


def run_processing(seed: int, *, attack_count: int = ATTACKS) -> Counter[str]:
    """Execute one run; return counts of its events and copies."""
    counts: Counter[str] = Counter()

    def observe(node: str, event: str, fields: Mapping[str, object]) -> None:
        del node, fields
        if event in _COUNTED:
            counts[event] += 1

    async def run(world: World) -> None:
        random = world.streams.stream("faults")
        world.network.set_quality(LinkQuality(delay_mean_s=0.002, loss=random.choice((0, 0.005))))
        world.observe(observe)
        brokers = ThreeBrokers(
            world,
            group_consumer_session_timeout_ms=10_000,
            group_consumer_heartbeat_interval_ms=1_000,
            group_initial_rebalance_delay_ms=0,
            group_replacement_delay_ms=0,
        )
        brokers.start()
        await brokers.serve()
        processors = Processors(world, random, has_strays=random.random() < 0.7)
        await _copy_and_suffer(
            brokers, processors, FaultInjector(brokers, random), attack_count=attack_count
        )
        copied = await _check(brokers)
        counts["copied"] += copied
        counts.update(processors.counts)

    Simulation(seed).run(run)
    return counts


async def _copy_and_suffer(
    brokers: ThreeBrokers, processors: Processors, faults: FaultInjector, *, attack_count: int
) -> None:
    written, should_stop = 0, False

    async def write(client: Client) -> None:
        nonlocal written
        with suppress(TopicExistsError):  # The first reply may be lost.
            await make_topic(client, PARTITION_COUNT)
        with suppress(TopicExistsError):
            await client.admin.create_topic(COPIES, 2, replication_factor=3)
        async with client.producer(delivery_timeout=5) as producer:
            for number in itertools.count():
                if should_stop:
                    return
                with suppress(TidelogError):  # The record may be in the log, or not.
                    await producer.send(TOPIC, b"order %d" % number, key=b"%d" % number)
                    written += 1
                await trio.sleep(_PACE_S)

    def has_copied(count: int) -> bool:
        return _copy_count(brokers) >= count

    async with trio.open_nursery() as nursery:
        nursery.start_soon(brokers.with_client, write)
        await until(lambda: written >= 5, 60)
        processors.start()
        await until(lambda: has_copied(5), 60)
        async with trio.open_nursery() as attacks:
            attacks.start_soon(faults.run, attack_count)
            attacks.start_soon(processors.attack)
        wanted = written + _AFTER
        await until(lambda: written >= wanted, 60)
        should_stop = True
    await until(lambda: has_copied(_input_count(brokers)), _PATIENCE_S)
    await processors.stop()


def _input_count(brokers: ThreeBrokers) -> int:
    return sum(max(brokers.end_of(node, each) for node in NODES) for each in range(PARTITION_COUNT))


def _copy_count(brokers: ThreeBrokers) -> int:
    """Return the number of copies at their leaders."""
    count = 0
    for number in range(2):
        leader = brokers.leader(COPIES, number)
        replica = None if leader is None else brokers.partition(leader, COPIES, number)
        count += 0 if replica is None else replica.high_watermark
    return count


async def _check(brokers: ThreeBrokers) -> int:
    """Compare the copies with the input.

    Raises:
        ViolationError: A copy is missing, repeated, or out of order.
    """
    expected: list[bytes] = []
    for number in range(PARTITION_COUNT):
        await brokers.check({}, number)
        expected += [b"%d/%d" % (number, at) for at in brokers.records(NODES[0], number)]
    copies: Counter[bytes] = Counter()
    for number in range(2):
        leader = brokers.leader(COPIES, number)
        assert leader is not None
        last: dict[bytes, int] = defaultdict(lambda: -1)
        for value in brokers.records(leader, number, COPIES).values():
            copies[value] += 1
            partition, _, offset = value.partition(b"/")
            if int(offset) <= last[partition]:
                raise ViolationError("ProcessedOnce", f"{value!r} is copied again or out of order")
            last[partition] = int(offset)
    missing = Counter(expected) - copies
    if missing or copies.total() != len(expected):
        raise ViolationError(
            "ProcessedOnce", f"lost {missing}, repeated {copies - Counter(expected)}"
        )
    return copies.total()
