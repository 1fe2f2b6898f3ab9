"""Random lives of an encrypted topic: kills, power cuts, and starts with a wrong or no master key.

No acknowledged record may be lost, and nothing may be truncated or count as damage.
"""

# Reads private state of ciphers.
# pyright: reportPrivateUsage=false

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from random import Random

import pytest
import trio

from tests.broker.encryption.keyrings import MASTER, OTHER_MASTER, key_file
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, live
from tidelog.broker.encryption.partition_cipher import PartitionCipher
from tidelog.client.client import Client
from tidelog.logstore.segments.log_slice import corrupt
from tidelog.wire.batch.record_batch import BatchHeader
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import BrokerError, DeliveryTimeoutError, KeyUnavailableError

KEY_FILES = (key_file(MASTER), key_file(OTHER_MASTER), "")
ROUNDS = 6


class DamageSeenError(Exception):
    """A replica has damage although only keys were missing."""


async def write(client: Client, acknowledged: list[bytes]) -> None:
    """Try to send one record; add it if it is acknowledged."""
    value = b"%d" % len(acknowledged)
    try:
        async with client.producer(delivery_timeout=3) as producer:
            await producer.send(TOPIC, value, partition=0)
    except (DeliveryTimeoutError, BrokerError):
        return
    acknowledged.append(value)


async def read(client: Client, count: int) -> list[bytes]:
    """Return the first records."""
    values: list[bytes] = []
    async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
        async for record in consumer:
            values.append(record.value or b"")
            if len(values) == count:
                break
    return values


def run_life(seed: int) -> None:
    """Run one life; raise if a record is lost, or if a replica has damage."""
    random = Random(seed)

    async def main(brokers: ThreeBrokers) -> None:
        acknowledged: list[bytes] = []

        async def work(client: Client) -> None:
            await client.admin.create_topic(
                TOPIC, 1, replication_factor=3, config={"encryption": "on"}
            )
            await write(client, acknowledged)
            for _ in range(ROUNDS):
                victim = random.choice(NODES)
                brokers.key_files[victim] = random.choice(KEY_FILES)
                if random.random() < 0.5:
                    brokers.kill(victim)
                else:
                    brokers.cut_power(victim)
                await trio.sleep(random.uniform(0.1, 3))
                brokers.start(victim)
                for _ in range(3):
                    await write(client, acknowledged)
                with trio.move_on_after(2):
                    await read(client, len(acknowledged))
                check_undamaged(brokers)
            brokers.key_files |= dict.fromkeys(NODES, key_file(MASTER))
            await brokers.all_in_sync()
            await write(client, acknowledged)
            check_undamaged(brokers)
            with trio.fail_after(120):
                found = await read(client, len(acknowledged))
            assert set(acknowledged) <= set(found)

        await brokers.with_client(work)

    live(seed, main, key_files=dict.fromkeys(NODES, key_file(MASTER)))


def check_undamaged(brokers: ThreeBrokers) -> None:
    for node_id in NODES:
        partition = brokers.partition(node_id)
        if partition is not None and partition.log.damage:
            raise DamageSeenError(f"node {node_id} has {partition.log.damage}")


@pytest.mark.parametrize("seed", range(4))
def test_wrong_and_missing_keys_lose_nothing(seed: int) -> None:
    run_life(seed)


def run_lives(seeds: Iterable[int]) -> None:
    for seed in seeds:
        run_life(seed)


@contextmanager
def missing_keys_are_damage() -> Iterator[None]:
    """The mutation: a batch whose key is missing counts as damaged."""
    real = PartitionCipher._open_into

    def open_(
        self: PartitionCipher, target: memoryview, header: BatchHeader, batch: BytesLike
    ) -> int:
        try:
            return real(self, target, header, batch)
        except KeyUnavailableError as error:
            raise corrupt(header.base_offset, header.next_offset) from error

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PartitionCipher, "_open_into", open_)
        yield


def test_the_lives_find_a_missing_key_that_counts_as_damage() -> None:
    with missing_keys_are_damage(), pytest.raises(DamageSeenError):
        run_lives(range(8))
