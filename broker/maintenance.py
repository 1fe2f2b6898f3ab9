"""What a broker does from time to time: retention, lazy flushes, tidying of connections.

Shell: owns two tasks, which cost nothing while there is nothing to do.
"""

from collections.abc import Iterable
from typing import Protocol, final

import trio

from broker.config import BrokerConfig
from broker.flusher import Flusher
from broker.partition import Partition
from broker.partitions import Partitions
from logstore.segment import Segment
from wire.env import Env


class Tidied(Protocol):
    """A connection."""

    def tidy(self, *, now_ms: int) -> None:
        """Give back what is not needed."""
        ...


@final
class Maintenance:
    """Keeps logs and connections within their limits."""

    def __init__(
        self,
        env: Env,
        config: BrokerConfig,
        partitions: Partitions,
        flusher: Flusher,
        connections: Iterable[Tidied],
    ) -> None:
        """Look after `partitions` and `connections`, which may change at any time."""
        self._env = env
        self._config = config
        self._partitions = partitions
        self._flusher = flusher
        self._connections = connections

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush_lazily)
            nursery.start_soon(self._tidy)

    async def _flush_lazily(self) -> None:
        while True:
            await trio.sleep(self._config.flush_interval_ms / 1000)
            self._flusher.flush_lazy()

    async def _tidy(self) -> None:
        interval = min(self._config.maintenance_interval_ms, self._config.stalled_frame_ms)
        while True:
            await trio.sleep(interval / 1000)
            now_ms = self._env.clock.now_ms()
            for connection in list(self._connections):
                connection.tidy(now_ms=now_ms)
            for partition in self._partitions.all():
                await self._look_after(partition, now_ms)

    async def _look_after(self, partition: Partition, now_ms: int) -> None:
        log = partition.log
        segments_before = log.segment_count
        log.roll_if_old(now_ms=now_ms)
        log.expire_producers(now_ms=now_ms)
        if log.segment_count != segments_before:
            self._flusher.request(partition)
        removed = log.apply_retention(high_watermark=partition.high_watermark, now_ms=now_ms)
        if removed:
            self._env.probe(
                "segments_deleted",
                directory=log.directory,
                count=len(removed),
                log_start_offset=log.log_start_offset,
            )
            await self._env.offload(lambda: _remove(removed))


def _remove(segments: list[Segment]) -> None:
    for segment in segments:
        segment.remove_files()
