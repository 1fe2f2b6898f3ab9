"""Random lives of staged batches: brokers die, pause, lose their power and each other meanwhile.

Writers stage batches by several tasks, do some of it twice, lose interest, abort, and commit until
they know what became of it, now and then with other tasks than before. In the end each committed
batch is there once: what one commit has named, in its order, in every partition; and nothing else
is there.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import NamedTuple, final

import trio

from client.client import Client
from client.staging import StagedBatch, StagedTask
from tests.broker.replication.lives import PARTITION_COUNT, Enemy
from tests.broker.replication.three_brokers import NODES, TOPIC, ThreeBrokers, make_topic
from tests.coordinator.raft_life import until
from tests.simulation.link import LinkQuality
from tests.simulation.world import Simulation, World
from wire.errors import (
    StagedRecordsLostError,
    TidelogError,
    TopicExistsError,
    TransactionGoneError,
)

ATTACKS = 8
STAGED_TOPIC = f"staged@{TOPIC}"
_PATIENCE_S = 15.0
_BATCHES_AFTER = 2
"""Each writer commits so many when all is well again."""
_COUNTED = {"replica_truncated", "staged_part_waits", "staged_records_lost"}

Contents = dict[int, list[bytes]]
"""Values by partition, in order."""


class Staged(NamedTuple):
    """One task that has ended well."""

    result: StagedTask
    contents: Contents


@final
class Ledger:
    """What was asked for, and what was said to have become of it."""

    def __init__(self) -> None:
        self.asked: dict[bytes, list[Contents]] = {}
        """What each commit of a batch has named; batches by name and id."""
        self.committed: dict[bytes, None] = {}
        self.dropped: dict[bytes, None] = {}
        """Those of which it was said that they will never be committed."""

    def check(self, found: Contents) -> None:
        """Check all partitions."""
        seen: dict[bytes, Contents] = {}
        for partition, values in found.items():
            for value in values:
                batch = value.rsplit(b":", 1)[0]
                seen.setdefault(batch, {}).setdefault(partition, []).append(value)
            batches = [value.rsplit(b":", 1)[0] for value in values]
            begins = [each for at, each in enumerate(batches) if at == 0 or batches[at - 1] != each]
            assert len(begins) == len(set(begins)), "batches are mixed up"
        for batch in self.committed:
            whole = [each for each in self.asked[batch] if any(each.values())]
            assert batch in seen or len(whole) < len(self.asked[batch]), f"{batch!r} is lost"
        for batch, contents in seen.items():
            assert batch not in self.dropped, f"{batch!r} was dropped, and is there"
            assert batch in self.committed, f"{batch!r} was never committed"
            assert contents in self.asked[batch], f"{batch!r} is not what any commit has named"


@final
class Stager:
    """Writes one batch after the other."""

    def __init__(self, name: str, random: Random, ledger: Ledger) -> None:
        self.should_stop = False
        self.count = 0
        self._name = name
        self._random = random
        self._ledger = ledger
        self._drawn = 0

    async def run(self, client: Client) -> None:
        while not self.should_stop:
            await self._write(client.staged(self._name, self.count))
            self.count += 1

    async def _write(self, batch: StagedBatch) -> None:
        """Do what it takes until it is known what became of a batch."""
        key = f"{self._name}/{batch.batch_id}".encode()
        tasks: list[Staged] = []
        is_wanted = self._random.random() < 0.85
        while True:
            with trio.move_on_after(self._random.uniform(0.05, _PATIENCE_S)):
                try:
                    if not tasks:
                        tasks = await self._stage(batch, key)
                    if not is_wanted and key not in self._ledger.asked:
                        assert not await batch.abort(), "nobody has committed it"
                        self._ledger.dropped[key] = None
                        return
                    self._note(key, tasks)
                    await batch.commit([task.result for task in tasks])
                    self._ledger.committed[key] = None
                except TransactionGoneError:
                    tasks = []
                except StagedRecordsLostError:
                    raise AssertionError("records of a commit are lost") from None
                except TidelogError:
                    await trio.sleep(0.2)
                else:
                    return
            if self._random.random() < 0.3:
                tasks = []  # As after a crash of whoever commits.

    async def _stage(self, batch: StagedBatch, key: bytes) -> list[Staged]:
        """Stage with some tasks, of which some lose; return the winners in any order."""
        staged: list[Staged] = []
        for _ in range(self._random.randint(1, 4)):
            contents: Contents = {}
            async with batch.task() as task:
                for _ in range(self._random.randint(0, 3)):
                    values = [self._value(key) for _ in range(self._random.randint(1, 4))]
                    partition = self._random.randrange(PARTITION_COUNT)
                    await task.send_many(TOPIC, values, partition=partition)
                    contents.setdefault(partition, []).extend(values)
            staged.append(Staged(task.result, contents))
        self._random.shuffle(staged)
        return staged[: self._random.randint(1, len(staged))]

    def _note(self, key: bytes, tasks: list[Staged]) -> None:
        """Take note of what is about to be committed."""
        contents: Contents = {}
        for task in tasks:
            # Who stages for a batch that is committed already stages nothing.
            for partition, values in task.contents.items() if task.result.number else ():
                contents.setdefault(partition, []).extend(values)
        asked = self._ledger.asked.setdefault(key, [])
        if contents not in asked:
            asked.append(contents)

    def _value(self, key: bytes) -> bytes:
        self._drawn += 1
        return b"%s:%d" % (key, self._drawn)


def live_and_suffer(seed: int, *, attack_count: int = ATTACKS) -> Counter[str]:
    """Live one life; return what happened in it, and how many batches were committed."""
    counts: Counter[str] = Counter()

    def observe(node: str, event: str, fields: Mapping[str, object]) -> None:
        del node, fields
        if event in _COUNTED:
            counts[event] += 1

    async def run(world: World) -> None:
        random = world.streams.stream("enemy")
        quality = LinkQuality(
            delay_mean_s=0.002, loss=random.choice((0, 0.01)), reset=random.choice((0, 0.001))
        )
        world.network.set_quality(quality)
        world.observe(observe)
        brokers = ThreeBrokers(world, replica_lag_max_ms=random.choice((500, 10_000)))
        brokers.start()
        await brokers.serve()
        ledger = Ledger()
        stagers = [Stager(name, world.streams.stream(name), ledger) for name in ("one", "other")]
        await _stage_and_suffer(brokers, stagers, Enemy(brokers, random), attack_count)
        await until(lambda: _staged_count(brokers) == 0, 60)
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
    brokers: ThreeBrokers, stagers: list[Stager], enemy: Enemy, attack_count: int
) -> None:
    async def write(client: Client) -> None:
        with suppress(TopicExistsError):  # The first answer may be lost.
            await make_topic(client, PARTITION_COUNT)
        async with trio.open_nursery() as nursery:
            for stager in stagers:
                nursery.start_soon(stager.run, client)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(brokers.with_client, write)
        await until(lambda: all(stager.count >= 2 for stager in stagers), 60)
        await enemy.run(attack_count)
        wanted = [stager.count + _BATCHES_AFTER for stager in stagers]
        await until(
            lambda: all(
                stager.count >= count for stager, count in zip(stagers, wanted, strict=True)
            ),
            240,
        )
        for stager in stagers:
            stager.should_stop = True


def _staged_count(brokers: ThreeBrokers) -> int:
    """Return how many records staging logs hold at their leaders; -1 if nobody leads one."""
    count = 0
    for number in range(PARTITION_COUNT):
        leader = brokers.leader(STAGED_TOPIC, number)
        replica = None if leader is None else brokers.partition(leader, STAGED_TOPIC, number)
        if replica is None:
            return -1
        count += replica.log.log_end_offset - replica.log.log_start_offset
    return count
