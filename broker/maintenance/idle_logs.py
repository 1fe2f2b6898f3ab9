"""Idle logs: describes them for the next start, and opens them when their time has come.

Shell: owns one task. A start after a kill opens the logs that were written since the last
description. So the descriptions are written now and then, at a small share of a core.
"""

from collections.abc import Callable
from typing import Final, final

import trio

from tidelog.broker.partitions.idle_replicas import DescribedReplica
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.wire.env.env import Env

_AT_ONCE: Final = 50
"""Number of logs handled before other tasks run."""
_LOOK_S: Final = 1.0
_PAUSE_S: Final = 60.0
_PAUSE_PER_S: Final = 200
"""Seconds of pause for each second of the last description: it takes half a percent of a core."""


@final
class IdleLogs:
    """Descriptions of the logs in which nothing is pending."""

    def __init__(
        self, env: Env, partitions: ReplicaManager, *, deletion_ms: Callable[[], int | None]
    ) -> None:
        """Describe logs of `partitions`; `run` must run in a task.

        `deletion_ms` returns the time that decides about deletion by time, `None` while nothing is
        deleted by time.
        """
        self._env = env
        self._partitions = partitions
        self._deletion_ms = deletion_ms
        self._written: list[DescribedReplica] = []

    async def run(self) -> None:
        """Work until cancelled."""
        due_at = trio.current_time() + _PAUSE_S
        while True:
            await trio.sleep(_LOOK_S)
            await self._open_due()
            if trio.current_time() >= due_at or self._env.buggify("idle logs early"):
                begun_at = trio.current_time()
                await self.write()
                took_s = trio.current_time() - begun_at
                due_at = trio.current_time() + max(_PAUSE_S, took_s * _PAUSE_PER_S)

    async def write(self) -> None:
        """Describe the logs in which nothing is pending, if that has changed."""
        found: list[DescribedReplica] = []
        for count, partition in enumerate(self._partitions.all()):
            if count % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            described = self._partitions.describe(partition)
            if described is not None:
                found.append(described)
        if found == self._written:
            return
        try:
            await self._partitions.idle.save(found)
        except OSError as error:
            # The next start opens more logs than it needs.
            self._env.probe("idle_logs_unwritten", severity="warning", reason=str(error))
        else:
            self._written = found

    async def _open_due(self) -> None:
        now_ms = self._deletion_ms()
        if now_ms is None:
            return
        for count, key in enumerate(self._partitions.idle.take_due(now_ms)):
            if count % _AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
            self._partitions.replica(*key)
