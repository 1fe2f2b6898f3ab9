"""Periodic maintenance of a broker: retention, background flushes, checkpoints, connections.

Shell: owns four tasks, which cost nothing while there is nothing to do.
"""

from collections.abc import Callable
from itertools import count as count_from
from typing import Protocol, final

import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.maintenance.retention import Retention
from tidelog.broker.partitions.partition import Partition
from tidelog.logstore.log import LogStatus
from tidelog.wire.env.env import Env

_AT_ONCE = 50
"""Number of logs handled before other tasks run: that takes a millisecond at most."""
_TIDY_S = 5.0
"""Maximum time in seconds between two checks of connections, which have deadlines of 10 s."""
_BLANK_ROUNDS = 60
"""Number of rounds after which the blank logs are determined again. Records that arrive meanwhile
are flushed anyway; this only matters if the disk was full for the first of them."""


class Tidied(Protocol):
    """A connection."""

    def tidy(self, *, now: float) -> None:
        """Return memory that is not needed; `now` is in seconds of trio's clock."""
        ...


@final
class Maintenance:
    """Keeps logs and connections within their limits."""

    def __init__(
        self,
        env: Env,
        config: Callable[[], BrokerConfig],
        retention: Retention,
        *,
        group_commit: GroupCommit,
        acceptor: Tidied,
        retry_logs: Callable[[], None],
    ) -> None:
        """Maintain the partitions of `retention` and the connections of `acceptor`.

        `config` returns the settings as they are now. `retry_logs` is called in each round: there
        may be room for logs that could not be created.
        """
        self._env = env
        self._config = config
        self._retention = retention
        self._partitions = retention.partitions
        self._group_commit = group_commit
        self._acceptor = acceptor
        self._retry_logs = retry_logs
        self._blank: set[Partition] = set()
        """Empty partitions without a flush request since the last check: checking twenty thousand
        logs costs a tenth of a second, which is too much for every round."""

    async def run(self) -> None:
        """Work until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._flush_lazily)
            nursery.start_soon(self._tidy)
            nursery.start_soon(self._look_after_logs)
            nursery.start_soon(self._group_commit.idle.run)

    async def _flush_lazily(self) -> None:
        while True:
            await trio.sleep(self._config().log_flush_interval_ms / 1000)
            self._group_commit.flush_lazy()

    async def _tidy(self) -> None:
        config = self._config()
        interval_s = min(config.maintenance_interval_ms, config.stalled_request_timeout_ms) / 1000
        while True:
            await trio.sleep(min(interval_s, _TIDY_S))
            self._acceptor.tidy(now=trio.current_time())

    async def _look_after_logs(self) -> None:
        for round_number in count_from(1):
            await trio.sleep(self._config().maintenance_interval_ms / 1000)
            self._retry_logs()
            if self._env.buggify("files dropped"):
                self._partitions.drop_files()
            self._retention.begin_round()
            self._blank -= self._group_commit.take_wanted()
            if round_number % _BLANK_ROUNDS == 0 or self._config().min_free_disk_bytes:
                self._blank.clear()
            for count, partition in enumerate(self._partitions.all()):
                if count % _AT_ONCE == 0:
                    await trio.lowlevel.checkpoint()
                if partition in self._blank:
                    continue
                if partition.log.is_idle and not self._config().min_free_disk_bytes:
                    self._blank.add(partition)
                    continue
                is_gone = not self._partitions.is_open(partition)
                if is_gone or partition.is_held or partition.is_removing:
                    continue
                try:
                    await self._look_after(partition)
                except OSError as error:
                    partition.probe(
                        "maintenance_failed",
                        severity="error",
                        reason=str(error),
                    )

    async def _look_after(self, partition: Partition) -> None:
        log = partition.log
        now_ms = self._env.clock.now_ms()
        segments_before = log.segment_count
        reserve_bytes = self._config().min_free_disk_bytes
        log.look_for_room(reserve_bytes=reserve_bytes)
        log.roll_if_old(now_ms=now_ms, force=self._env.buggify("roll early"))
        deletion_ms = self._retention.deletion_ms()
        if deletion_ms is not None:
            before_ms = deletion_ms - log.config.producer_expiry_ms
            log.producers.expire(before_ms=before_ms, is_kept=self._partitions.movers.is_one)
        if log.segment_count != segments_before:
            self._group_commit.request(partition)
        await self._retention.apply(partition)
        is_full = log.status is LogStatus.READ_ONLY
        full = f"the disk has no room beyond min_free_disk_bytes, {reserve_bytes} bytes"
        partition.note_status(full if is_full else "seen by maintenance")
