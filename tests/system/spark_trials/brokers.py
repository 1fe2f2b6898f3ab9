"""Three broker processes, which are killed while Spark reads and writes."""

from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from pathlib import Path
from typing import final

import trio

from tests.system.integration.nodes import Nodes
from tidelog import blocking
from tidelog.blocking.thread import TrioThread


@final
class Brokers:
    """Three brokers of one cluster, and a client."""

    def __init__(self, thread: TrioThread[Nodes], client: blocking.Client, data_dir: Path) -> None:
        self._thread = thread
        self._nodes = thread.resource
        self.client = client
        self._data_dir = data_dir

    @property
    def addresses(self) -> str:
        """Addresses of all brokers."""
        return self._nodes.addresses

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return the leader of a partition."""
        while True:
            (described,) = self.client.admin.describe_topics([topic])
            leader_id = described.partitions[partition].leader_id
            if leader_id is not None:
                return leader_id

    def kill(self, node_id: int) -> None:
        """Kill a broker with SIGKILL; return when it is dead."""
        self._thread.call(partial(self._nodes.kill_and_wait, node_id))

    def start(self, node_id: int) -> None:
        """Restart a broker; return when it serves."""
        self._thread.call(partial(self._nodes.start, node_id))

    def has_staged(self, topic: str) -> bool:
        """Return whether a staging log has records of a topic."""
        logs = self._data_dir.glob(f"*/topics/staged@{topic}.*/*/*.log")
        return any(log.stat().st_size for log in logs)

    def write(self, topic: str, values: Sequence[bytes], partitions: int) -> None:
        """Write values, round robin over all partitions."""
        with self.client.producer() as producer:
            for partition in range(partitions):
                producer.send_many(topic, values[partition::partitions], partition=partition)

    def values(self, topic: str) -> list[bytes]:
        """Return all values in a topic."""
        (described,) = self.client.admin.describe_topics([topic])
        count = sum(each.high_watermark or 0 for each in described.partitions)
        found: list[bytes] = []
        if count:
            with self.client.consumer(topic, auto_offset_reset="earliest") as consumer:
                for record in consumer:
                    found.append(record.value or b"")
                    if len(found) == count:
                        break
        return found


@contextmanager
def three_brokers(data_dir: Path) -> Generator[Brokers, None, None]:
    """Run three brokers while the block runs."""
    thread = TrioThread(_nodes(data_dir))
    try:
        with blocking.connect(thread.resource.addresses) as client:
            yield Brokers(thread, client, data_dir)
    finally:
        thread.close()


@asynccontextmanager
async def _nodes(data_dir: Path) -> AsyncGenerator[Nodes, None]:
    async with trio.open_nursery() as nursery:
        nodes = Nodes(data_dir, nursery)
        await nodes.start(*nodes.ids)
        yield nodes
        nursery.cancel_scope.cancel()
