"""Idle replicas: logs that a start leaves closed, and the file that describes them.

Shell: owns the file `idle-logs`. A broker writes it at a clean stop, and now and then. A start
believes the description of a log only if the log's files are as described. A replica that is
believed stays closed until a request, a role, or time needs it. Then its log is recovered as at a
start, and nothing but what recovery finds is served.

The file holds no state: a start opens each log that it does not describe rightly. So the file may
be old or missing, and versions that do not know it need no care.
"""

import heapq
from collections.abc import ItemsView, Iterable, Sequence
from functools import partial
from typing import Final, NamedTuple, final

import msgspec

from tidelog.coordinator.metadata.broker_delta import Key
from tidelog.logstore.checkpoint import (
    CHECKPOINT_NAME,
    DamagedFileError,
    checked_crc,
    read_small_file,
    write_small_file,
)
from tidelog.logstore.disk.disk import Disk
from tidelog.logstore.idle_log import IdleLog, is_unchanged
from tidelog.wire.env.env import Env
from tidelog.wire.errors import DataDirectoryError

IDLE_LOGS_NAME: Final = "idle-logs"
_AT_ONCE: Final = 500
"""Number of logs that a thread looks at before other threads and tasks run."""


class IdleReplica(IdleLog, frozen=True, array_like=True, gc=False):
    """A replica whose log is closed."""

    is_drained: bool = False
    """Whether it is the journal of a queue partition without messages."""

    @property
    def is_blank(self) -> bool:
        """Whether the log was never created: it has no files, and no record was ever in it."""
        return self.end_position == 0


BLANK: Final = IdleReplica(0, 0, 0, 0, 0, 0, None, is_drained=True)
"""The description of all blank replicas."""


class IdleLogsContent(msgspec.Struct, frozen=True, array_like=True):
    """Contents of the file."""

    replicas: list[tuple[bytes, int, IdleReplica]]
    """Topic id and number of the partition, and its log."""


class QueueRest(NamedTuple):
    """A partition of a queue in which nothing happens without a request or a new message."""

    due_ms: int | None
    """Time at which its messages may expire, Unix milliseconds; `None` if there are none."""
    is_drained: bool
    """Whether it is known to have no messages."""


class DescribedReplica(NamedTuple):
    """A replica for the file."""

    key: Key
    directory: str
    replica: IdleReplica


@final
class IdleReplicas:
    """The replicas of one data directory that are closed."""

    def __init__(self, env: Env, disk: Disk) -> None:
        """Start without replicas, before `load`."""
        self._env = env
        self._disk = disk
        self._stored: dict[Key, IdleReplica] = {}
        """The descriptions in the file, until `keep_unchanged`."""
        self._replicas: dict[Key, IdleReplica] = {}
        self._due: list[tuple[int, Key]] = []
        """A heap of the times at which replicas change, with those that are open by now."""
        self.size_bytes = 0
        """Bytes of all closed logs."""

    def __len__(self) -> int:
        return len(self._replicas)

    def __contains__(self, key: Key) -> bool:
        return key in self._replicas

    def get(self, key: Key) -> IdleReplica | None:
        """Return a closed replica, `None` if it is open or not here."""
        return self._replicas.get(key)

    def items(self) -> ItemsView[Key, IdleReplica]:
        """Return all closed replicas; they change while tasks run."""
        return self._replicas.items()

    def take(self, key: Key) -> IdleReplica | None:
        """Remove a replica that is opened or leaves, and return it."""
        replica = self._replicas.pop(key, None)
        if replica is not None:
            self.size_bytes -= replica.size_bytes
        return replica

    def is_blank(self, key: Key) -> bool:
        """Return whether a replica was never created."""
        return self._replicas.get(key) is BLANK

    def take_due(self, now_ms: int) -> list[Key]:
        """Return closed replicas whose time has come, each once."""
        due: list[Key] = []
        while self._due and self._due[0][0] <= now_ms:
            key = heapq.heappop(self._due)[1]
            if key in self._replicas:
                due.append(key)
        return due

    async def load(self) -> None:
        """Read the descriptions of an earlier process.

        Raises:
            OSError: The disk failed.
        """
        try:
            content = await self._env.run_in_thread(
                lambda: read_small_file(self._disk, IDLE_LOGS_NAME, IdleLogsContent)
            )
        except (DamagedFileError, DataDirectoryError) as error:
            self._env.probe("idle_logs_unreadable", severity="warning", reason=str(error))
            return
        if content is not None:
            self._stored = {
                (topic_id, number): replica for topic_id, number, replica in content.replicas
            }

    async def keep_unchanged(self, candidates: Iterable[tuple[Key, str]]) -> None:
        """Leave those replicas closed whose logs are as described.

        `candidates` are the replicas that may stay closed, with their directories.

        Raises:
            OSError: The disk failed.
        """
        stored, self._stored = self._stored, {}
        described = [
            DescribedReplica(key, directory, stored[key])
            for key, directory in candidates
            if key in stored
        ]
        for first in range(0, len(described), _AT_ONCE):
            part = described[first : first + _AT_ONCE]
            is_kept = await self._env.run_in_thread(partial(self._are_unchanged, part))
            for (key, _, replica), is_idle in zip(part, is_kept, strict=True):
                if is_idle:
                    self._add(key, replica)

    async def save(self, open_replicas: Sequence[DescribedReplica]) -> None:
        """Write the file: all closed replicas, and these open ones, in which nothing is pending.

        Raises:
            OSError: The disk is full or failed; the file is as before.
        """
        rows = [(*key, each) for key, each in self._replicas.items() if not each.is_blank]
        for first in range(0, len(open_replicas), _AT_ONCE):
            part = open_replicas[first : first + _AT_ONCE]
            rows += await self._env.run_in_thread(partial(self._with_crcs, part))
        await self._env.run_in_thread(
            lambda: write_small_file(self._disk, IDLE_LOGS_NAME, IdleLogsContent(rows))
        )

    def _are_unchanged(self, described: Sequence[DescribedReplica]) -> list[bool]:
        return [is_unchanged(self._disk, each.directory, each.replica) for each in described]

    def _with_crcs(
        self, described: Sequence[DescribedReplica]
    ) -> list[tuple[bytes, int, IdleReplica]]:
        rows: list[tuple[bytes, int, IdleReplica]] = []
        for key, directory, replica in described:
            try:
                crc = checked_crc(self._disk, f"{directory}/{CHECKPOINT_NAME}")
            except FileNotFoundError:
                continue  # It was removed meanwhile.
            if crc is not None:
                rows.append((*key, msgspec.structs.replace(replica, checkpoint_crc=crc)))
        return rows

    def add_blank(self, key: Key) -> None:
        """Add a replica that was never created."""
        self._replicas[key] = BLANK

    def _add(self, key: Key, replica: IdleReplica) -> None:
        self._replicas[key] = replica
        self.size_bytes += replica.size_bytes
        if replica.due_ms is not None:
            heapq.heappush(self._due, (replica.due_ms, key))
