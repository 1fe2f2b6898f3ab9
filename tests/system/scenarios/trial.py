"""One scenario: writers, three brokers as processes, and the comparison of all records at the end.

Writers append with `acks=all` while the faults happen. At the end every acknowledged record must be
at the offset of its acknowledgement, once.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final, final

import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import TIDELOG

TOPIC: Final = "orders"
PARTITIONS: Final = 3
_WRITERS: Final = 4
_CHUNK: Final = 20
_DEADLINE_S: Final = 300.0
"""For a scenario that hangs."""

Place = tuple[int, int]
"""Partition and offset."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Faults, and the broker that lost acknowledged records under faults of this kind."""

    name: str
    seen_in: str
    act: Callable[["Trial"], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The records of one scenario."""

    scenario: Scenario
    acknowledged: int
    lost: int
    moved: int
    """Acknowledged records that are at another offset."""
    doubled: int
    """Records that the log has more than once."""

    @property
    def is_right(self) -> bool:
        """Whether the scenario kept the promise."""
        return self.acknowledged > 0 and not (self.lost or self.moved or self.doubled)

    def line(self) -> str:
        """Return a row of the table in `docs/guarantees.md`."""
        return (
            f"| {self.scenario.name} | {self.scenario.seen_in} | {self.acknowledged:,} |"
            f" {self.lost} | {self.moved} | {self.doubled} |"
        )


@final
class Trial:
    """Three brokers, and clients that write to them."""

    def __init__(
        self, data_dir: Path, nodes: Nodes, random: Random, *, pause_s: float = 0.0
    ) -> None:
        """Start without records; a writer pauses for `pause_s` before each call."""
        self._pause_s = pause_s
        self.nodes = nodes
        self.random = random
        self._data_dir = data_dir
        self._acknowledged: dict[bytes, Place] = {}
        self._next = 0

    def directory(self, node_id: int) -> Path:
        """Return the data directory of a broker."""
        return self._data_dir / str(node_id)

    def newest_segments(self, node_id: int) -> list[Path]:
        """Return the newest segment of each partition on a broker."""
        partitions = sorted(self.directory(node_id).glob(f"topics/{TOPIC}.*/*"))
        return [max(partition.glob("*.log")) for partition in partitions]

    async def write(self, seconds: float) -> None:
        """Append records for a while."""
        with trio.move_on_after(seconds):
            await self.write_on()

    async def write_on(self) -> None:
        """Append records until cancelled; a writer goes on after any error."""
        async with (
            tidelog.connect(self.nodes.addresses) as client,
            client.producer(acks="all", delivery_timeout=30) as producer,
            trio.open_nursery() as nursery,
        ):
            for _ in range(_WRITERS):
                nursery.start_soon(self._write, producer)

    async def _write(self, producer: tidelog.Producer) -> None:
        while True:
            await trio.sleep(self._pause_s)
            values = [b"%d" % (self._next + each) for each in range(_CHUNK)]
            self._next += _CHUNK
            with suppress(tidelog.TidelogError, trio.ClosedResourceError):
                for receipt in await producer.send_many(TOPIC, values, keys=values):
                    assert receipt.offset is not None
                    for place, index in enumerate(receipt.indexes):
                        at = receipt.partition, receipt.offset + place
                        self._acknowledged[values[index]] = at

    async def kill(self, *node_ids: int) -> None:
        """Kill brokers at once."""
        async with trio.open_nursery() as killing:
            for node_id in node_ids:
                killing.start_soon(self.nodes.kill_and_wait, node_id)

    async def start(self, *node_ids: int, apart_s: float = 0.0) -> None:
        """Start brokers one after the other, and wait until all of them serve."""
        async with trio.open_nursery() as starting:
            for node_id in node_ids:
                starting.start_soon(self.nodes.start, node_id)
                await trio.sleep(apart_s)

    async def wait_out_of_sync(self, node_id: int) -> None:
        """Wait until a dead broker is in no ISR."""
        async with tidelog.connect(self.nodes.addresses) as client:
            while True:
                (topic,) = await client.admin.describe_topics([TOPIC])
                if not any(node_id in each.in_sync_replicas for each in topic.partitions):
                    return
                await trio.sleep(0.1)

    async def outcome(self, scenario: Scenario) -> Outcome:
        """Wait until the cluster is whole, and compare all records."""
        async with tidelog.connect(self.nodes.addresses) as client:
            while (await client.admin.describe_cluster()).under_replicated_count:  # noqa: ASYNC110 - the condition is in the cluster
                await trio.sleep(0.2)
            async with client.consumer(TOPIC, auto_offset_reset="earliest") as consumer:
                read = [
                    (record.value or b"", (record.partition, record.offset))
                    async for batch in consumer.batches(await consumer.end_offsets())
                    for record in batch
                ]
        counts = Counter(value for value, _ in read)
        places = dict(read)
        return Outcome(
            scenario,
            len(self._acknowledged),
            lost=sum(value not in places for value in self._acknowledged),
            moved=sum(
                value in places and places[value] != place
                for value, place in self._acknowledged.items()
            ),
            doubled=sum(count > 1 for count in counts.values()),
        )


async def run(
    scenario: Scenario,
    data_dir: Path,
    random: Random,
    *,
    program: Sequence[str] = TIDELOG,
    pause_s: float = 0.0,
) -> Outcome:
    """Run one scenario on brokers of its own, which begin with the command `program`.

    Raises:
        trio.TooSlowError: The cluster did not recover.
    """
    with trio.fail_after(_DEADLINE_S):
        async with trio.open_nursery() as nursery:
            nodes = Nodes(data_dir, nursery, program=program)
            trial = Trial(data_dir, nodes, random, pause_s=pause_s)
            await trial.nodes.start(*trial.nodes.ids)
            async with tidelog.connect(trial.nodes.addresses) as client:
                await client.admin.create_topic(
                    TOPIC,
                    partitions=PARTITIONS,
                    replication_factor=3,
                    config={"min_insync_replicas": "2"},
                )
            await scenario.act(trial)
            outcome = await trial.outcome(scenario)
            nursery.cancel_scope.cancel()
    return outcome
