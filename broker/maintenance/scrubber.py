"""Scrubber: rereads everything on disk, in rounds, to find damage before a read needs the data.

Shell: owns one task, which waits most of the time. A disk reports a lost bit only when it is read.
If the other replicas have lost theirs by then, repair is no longer possible.
"""

from collections.abc import Callable
from contextlib import suppress
from typing import Final, final

import msgspec
import trio

from tidelog.broker.config.broker_config import BrokerConfig
from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.metadata.broker_delta import Key
from tidelog.logstore.checkpoint import DamagedFileError
from tidelog.logstore.segments.gap_scan import Gap
from tidelog.logstore.segments.segment_scrub import SegmentScrub, is_checkpoint_spoiled
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, CorruptRecordError, DataDirectoryError

_FIRST_ROUND_S: Final = 60.0
"""Delay of the first round in seconds: a start has enough other work."""
_STEPS_PER_S: Final = 4
_STEP_BYTES_MIN: Final = 64 << 10
_STEP_BYTES_MAX: Final = 8 << 20
_LOG_COST_BYTES: Final = 64 << 10
"""Cost of a log besides its records, in bytes: opening files and starting threads."""


class ScrubProgress(msgspec.Struct, frozen=True):
    """Progress of scrubbing."""

    rounds_ended: int = 0
    log_count: int = 0
    """Number of logs in the round under way, 0 between rounds."""
    logs_done: int = 0
    """Number of those logs that have been read."""
    bytes_done: int = 0
    """Bytes read of them."""
    damage_found: int = 0
    """Number of damaged ranges found since the broker started."""


@final
class Scrubber:
    """Checks the durable bytes of all logs, at a limited rate."""

    def __init__(
        self,
        env: Env,
        config: Callable[[], BrokerConfig],
        partitions: ReplicaManager,
        *,
        group_commit: GroupCommit,
    ) -> None:
        """Check the logs of `partitions`, which may change at any time; run `run` in a task.

        `config` returns the settings as they are now. Whether scrubbing is on, and its interval,
        are fixed at the start.
        """
        self._env = env
        self._config = config
        self._is_on = config().scrub_max_bytes_per_second > 0
        self._interval_s = config().scrub_interval_ms / 1000
        self._partitions = partitions
        self._group_commit = group_commit
        self._working = trio.CancelScope()
        self.progress = ScrubProgress()

    @property
    def _bytes_per_s(self) -> int:
        return self._config().scrub_max_bytes_per_second

    @property
    def _step_bytes(self) -> int:
        per_step = self._bytes_per_s // _STEPS_PER_S
        return min(max(per_step, _STEP_BYTES_MIN), _STEP_BYTES_MAX)

    async def run(self) -> None:
        """Read in rounds, until cancelled or stopped; return at once if scrubbing is off."""
        if not self._is_on:
            return
        with self._working:
            await trio.sleep(min(_FIRST_ROUND_S, self._interval_s))
            while True:
                begun_at = trio.current_time()
                await self._run_round()
                await trio.sleep_until(begun_at + self._interval_s)

    def stop(self) -> None:
        """Stop; a read under way in a thread is finished."""
        self._working.cancel()

    async def _run_round(self) -> None:
        partitions, closed = self._partitions.all(), list(self._partitions.idle.items())
        # A random first log, since brokers may be restarted more often than a round ends.
        first = self._env.random.randrange(len(partitions)) if partitions else 0
        begun_at = trio.current_time()
        self._update(log_count=len(partitions) + len(closed), logs_done=0, bytes_done=0)
        for partition in partitions[first:] + partitions[:first]:
            if partition.log.is_idle and partition.log.log_end_offset == 0:
                await trio.lowlevel.checkpoint()  # The log has never had records.
            else:
                await self._scrub(partition)
            self._update(logs_done=self.progress.logs_done + 1)
        for key, idle in closed:
            if idle.log_end_offset == 0:
                await trio.lowlevel.checkpoint()
            else:
                await self._scrub_closed(key)
            self._update(logs_done=self.progress.logs_done + 1)
        damage_known = sum(len(each.log.damage) for each in self._partitions.all())
        self._env.probe(
            "scrub_round_ended",
            severity="warning" if damage_known else "info",
            log_count=len(partitions) + len(closed),
            size_bytes=self.progress.bytes_done,
            seconds=round(trio.current_time() - begun_at, 1),
            damage_found=self.progress.damage_found,
            damage_known=damage_known,
        )
        self._update(rounds_ended=self.progress.rounds_ended + 1, log_count=0, logs_done=0)

    async def _scrub_closed(self, key: Key) -> None:
        """Scrub a closed log; open it if it is not intact, or if a request has opened it."""
        await trio.sleep(_LOG_COST_BYTES / self._bytes_per_s)
        is_intact = False
        scrubs = self._partitions.closed_scrubs(key)
        with suppress(OSError, DamagedFileError, DataDirectoryError):
            while scrub := await self._env.run_in_thread(lambda: next(scrubs, None)):
                await self._read(scrub)
                if scrub.gaps or scrub.spoiled:
                    break
            else:
                is_intact = key in self._partitions.idle
        if not is_intact:
            partition = self._partitions.replica(*key)
            if partition is not None:
                await self._scrub(partition)

    async def _read(self, scrub: SegmentScrub) -> None:
        """Read a segment of a closed log."""
        while not scrub.is_done:
            bytes_seen = scrub.read_bytes
            cost = await self._env.run_in_thread(lambda: scrub.run(self._step_bytes))
            done = scrub.read_bytes - bytes_seen
            self._update(bytes_done=self.progress.bytes_done + done)
            await trio.sleep(cost / self._bytes_per_s)

    async def _scrub(self, partition: Partition) -> None:
        from_offset = 0
        try:
            await self._scrub_checkpoint(partition)
            await trio.sleep(_LOG_COST_BYTES / self._bytes_per_s)
            while self._is_open(partition):
                scrub = partition.log.begin_scrub(from_offset=from_offset)
                if scrub is None:
                    return
                from_offset = scrub.base_offset + 1
                await self._scrub_segment(partition, scrub)
        except OSError as error:
            if self._is_open(partition):  # Otherwise its files are being removed.
                partition.reading_failed(error)

    def _is_open(self, partition: Partition) -> bool:
        return self._partitions.is_open(partition)

    async def _scrub_segment(self, partition: Partition, scrub: SegmentScrub) -> None:
        gaps_seen = bytes_seen = 0
        while not scrub.is_done:
            cost = await self._env.run_in_thread(lambda: scrub.run(self._step_bytes))
            for gap in scrub.gaps[gaps_seen:]:
                await self._look_closer(partition, gap)
            gaps_seen = len(scrub.gaps)
            done = scrub.read_bytes - bytes_seen
            bytes_seen = scrub.read_bytes
            self._update(bytes_done=self.progress.bytes_done + done)
            # Very small batches cost more than their bytes.
            await trio.sleep(cost / self._bytes_per_s)
        if scrub.spoiled and self._is_open(partition) and not partition.is_held:
            self._tell_spoiled(partition, ", ".join(scrub.spoiled))
            if scrub.repair():
                await self._env.run_in_thread(scrub.sync)

    async def _look_closer(self, partition: Partition, gap: Gap) -> None:
        """Read as a consumer would, which records damage; the log may have changed by now."""
        log = partition.log
        offset = max(gap.offset, log.log_start_offset)
        if any(each.offset <= offset and gap.end_offset <= each.end_offset for each in log.damage):
            return
        try:
            part = log.read(offset, max_bytes=1, high_watermark=log.log_end_offset)
            if part is not None:
                await self._env.run_in_thread(part.load)
        except CorruptRecordError as error:
            partition.damage_found(error)
            self._update(damage_found=self.progress.damage_found + 1)
            partition.probe(
                "scrub_found_damage",
                severity="error",
                offset=error.offset,
                next_offset=error.next_offset,
            )
            # The checkpoint passes the damage on to the next start.
            self._group_commit.request(partition)
        except BrokerError:
            return  # The range was deleted, or the log went offline, and both are known.

    async def _scrub_checkpoint(self, partition: Partition) -> None:
        log = partition.log
        disk = self._partitions.disk
        is_spoiled = await self._env.run_in_thread(
            lambda: is_checkpoint_spoiled(disk, log.directory)
        )
        # The files of a replica that left this broker, or is recreated, are being removed.
        if is_spoiled and self._is_open(partition) and not partition.is_held:
            self._tell_spoiled(partition, "checkpoint")
            log.request_checkpoint(is_due=True)
            self._group_commit.request(partition)

    def _tell_spoiled(self, partition: Partition, what: str) -> None:
        partition.probe(
            "scrub_found_spoiled",
            severity="warning",
            what=what,
        )

    def _update(self, **changes: int) -> None:
        self.progress = msgspec.structs.replace(self.progress, **changes)
