"""Random runs of an encrypted topic on three brokers, which lose their master keys and crash.

Brokers are killed or lose power, and start with the right, a wrong or no master key; key files also
change while brokers run, and data keys are rotated. Meanwhile a client writes and reads. At the end
all keys are back: every acknowledged record is readable, no replica has ever had damage, and no
disk shows a record.
"""

from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Final, final

import trio

from tests.broker.encryption.keyrings import MASTER, OTHER_MASTER, key_file
from tests.broker.replication.damage import segments
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers
from tests.simulation.machine.world import Simulation, World
from tidelog.client.client import Client
from tidelog.wire.errors import BrokerError, DeliveryTimeoutError

ROUNDS: Final = 6
_RIGHT: Final = key_file(MASTER)
_KEY_FILES: Final = (_RIGHT, key_file(OTHER_MASTER), "")
_SECRET: Final = b"a record that no disk may show: %d"
_EVENTS: Final = {
    "data_keys_unavailable",
    "data_keys_available",
    "replica_truncated",
    "log_damaged",
}


@final
class EncryptedRun:
    """One run: the client, and what happens to the brokers."""

    def __init__(self, brokers: ThreeBrokers, random: Random, counts: Counter[str]) -> None:
        self._brokers = brokers
        self._random = random
        self._counts = counts
        self._acknowledged: list[bytes] = []
        self._sent = 0

    async def run(self, client: Client, rounds: int) -> None:
        """Execute the run.

        Raises:
            AssertionError: A record is lost or in the clear, or a replica has damage.
        """
        brokers = self._brokers
        config = {"encryption": "on"}
        await client.admin.create_topic(TOPIC, 1, replication_factor=3, config=config)
        await self._write(client)
        for _ in range(rounds):
            await self._hurt()
            for _ in range(3):
                await self._write(client)
            with trio.move_on_after(2):
                await self._read(client)
            if self._random.random() < 0.5:
                await self._rotate(client)
            self._check_undamaged()
        brokers.key_files |= dict.fromkeys(NODES, _RIGHT)
        await brokers.all_in_sync()
        await self._write(client)
        with trio.fail_after(120):
            found = await self._read(client)
        assert set(self._acknowledged) <= set(found), "an acknowledged record is lost"
        self._check_undamaged()
        self._check_sealed()
        self._counts["acknowledged"] += len(self._acknowledged)

    async def _hurt(self) -> None:
        """Exchange the key file of a broker, and perhaps let it crash."""
        brokers, random = self._brokers, self._random
        victim = brokers.leader() if random.random() < 0.5 else None
        victim = victim or random.choice(NODES)
        brokers.key_files[victim] = random.choice(_KEY_FILES)
        crash = random.choice((brokers.kill, brokers.cut_power, None))
        if crash is not None:
            crash(victim)
        await trio.sleep(random.uniform(0.1, 6))
        if crash is not None:
            brokers.start(victim)

    async def _write(self, client: Client) -> None:
        """Try to send one record."""
        value = _SECRET % self._sent
        self._sent += 1
        try:
            async with client.producer(delivery_timeout=3) as producer:
                await producer.send(TOPIC, value, partition=0)
        except (DeliveryTimeoutError, BrokerError):
            self._counts["not acknowledged"] += 1
            return
        self._acknowledged.append(value)

    async def _read(self, client: Client) -> list[bytes]:
        """Return all records."""
        async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
            end = await consumer.end_offsets()
            return [record.value or b"" async for record in consumer.records(end)]

    async def _rotate(self, client: Client) -> None:
        try:
            with trio.move_on_after(2):
                await client.security.rotate_data_key(TOPIC)
                self._counts["rotated"] += 1
        except BrokerError:
            self._counts["not rotated"] += 1  # The broker has no master key, or no majority.

    def _check_undamaged(self) -> None:
        for node_id in NODES:
            partition = self._brokers.partition(node_id)
            damage = () if partition is None else partition.log.damage
            assert not damage, f"node {node_id} takes a missing key for damage: {damage}"

    def _check_sealed(self) -> None:
        shown = _SECRET.partition(b"%")[0]
        for node_id in NODES:
            disk = self._brokers.machines[node_id].disk
            for path in segments(self._brokers, node_id):
                assert shown not in disk.visible_bytes(path), f"{path} shows a record"


def run_encryption(seed: int, *, rounds: int = ROUNDS) -> Counter[str]:
    """Execute one run; return counts of its events, records and rotations."""
    counts: Counter[str] = Counter()

    def observe(node: str, event: str, fields: Mapping[str, object]) -> None:
        del node, fields
        if event in _EVENTS:
            counts[event] += 1

    async def run(world: World) -> None:
        world.observe(observe)
        brokers = ThreeBrokers(world)
        brokers.key_files = dict.fromkeys(NODES, _RIGHT)
        brokers.start()
        await brokers.serve()
        found = EncryptedRun(brokers, world.streams.stream("faults"), counts)
        await brokers.with_client(lambda client: found.run(client, rounds))

    Simulation(seed).run(run)
    return counts
