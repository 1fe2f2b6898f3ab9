"""Keys of encryption at rest on this broker: master keys, and new data keys of topics.

Shell: owns one task. It reads the master keys again when they change, gives an encrypted topic its
first data key, rotates old data keys, and reports topics whose keys cannot be used here.
"""

from collections.abc import Awaitable, Callable, Iterable
from typing import Final, final

import trio

from tidelog.broker.encryption.master_keys import MasterKeys
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.metadata.broker_delta import BrokerDelta
from tidelog.coordinator.node import ClusterNode
from tidelog.coordinator.security.commands import SetDataKey
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    ConfigError,
    ConnectionLostError,
    KeyUnavailableError,
    WireFormatError,
)

MasterSource = Callable[[], Awaitable[str]]
"""Returns the text of a key file, empty if none is configured.

Raises `ConfigError`, with a text that has no key.
"""
SUBMIT_TIMEOUT_S: Final = 10.0
_RETRY_S: Final = 1.0
_TOPICS_SHOWN: Final = 5


async def no_master_source() -> str:
    """Return no key: neither a file nor a command is configured."""
    return ""


@final
class KeyManager:
    """Keeps the keyring of this broker usable."""

    def __init__(
        self,
        env: Env,
        cluster: ClusterNode,
        partitions: ReplicaManager,
        *,
        source: MasterSource,
    ) -> None:
        """Manage the keyring of `partitions`. Call `load`, then run `run` in a task."""
        self._env = env
        self._cluster = cluster
        self._partitions = partitions
        self._source = source
        self._text: str | None = None
        self._known_error = ""
        self._security_version = -1
        self._locked: dict[bytes, str] = {}
        self.locked_partition_count = 0
        """Replicas here of the topics in `locked`."""
        self._has_news = trio.Event()

    @property
    def locked(self) -> dict[bytes, str]:
        """Topics whose records cannot be read or written here, with the reason."""
        return dict(self._locked)

    async def load(self) -> None:
        """Read the master keys. The present ones stay in use if that fails, which is reported."""
        keyring = self._partitions.keyring
        try:
            text = await self._source()
            if text != self._text:
                # Empty text says that there is no source; else the file has just been cut short.
                is_source = bool(text or keyring.masters)
                keyring.use(
                    MasterKeys.parse(text, "the source of master keys")
                    if is_source
                    else MasterKeys(),
                    "this broker has no master key; set master_key_file or master_key_command",
                )
                self._text = text
                if keyring.masters:
                    self._env.probe("master_keys_loaded", master_ids=list(keyring.masters.ids))
            self._known_error = ""
        except ConfigError as error:
            if not keyring.masters:
                keyring.use(MasterKeys(), str(error))
            if str(error) != self._known_error:
                self._known_error = str(error)
                self._env.probe("master_keys_unreadable", severity="error", reason=str(error))

    async def run(self, interval_s: Callable[[], float]) -> None:
        """Work until cancelled; read the master keys every `interval_s`."""
        self._cluster.metadata.subscribe(self._heard, hears_transactions=False)
        self._partitions.listeners.append(self._led)
        while True:
            self._has_news = trio.Event()
            is_complete = await self.tend()
            with trio.move_on_after(interval_s() if is_complete else _RETRY_S) as waiting:
                await self._has_news.wait()
            if waiting.cancelled_caught:
                await self.load()

    async def tend(self) -> bool:
        """Add the data keys that are missing or too old; return whether that was possible."""
        is_complete = True
        for partition in self._due():
            try:
                await self.rotate(partition.topic_id)
            except (BrokerError, ConnectionLostError, WireFormatError) as error:
                is_complete = False
                if not isinstance(error, KeyUnavailableError):
                    self._env.probe(
                        "data_key_rotation_failed",
                        severity="warning",
                        topic=partition.topic,
                        reason=str(error),
                    )
        self._report()
        return is_complete

    async def rotate(self, topic_id: bytes) -> int:
        """Give a topic one more data key; return its id.

        Raises:
            KeyUnavailableError: This broker has no master key, or cannot use the newest data key.
            RequestTimedOutError: The voters have no majority.
        """
        command = self._partitions.keyring.new_key(topic_id)
        await self.submit(command)
        return command.key_id

    async def submit(self, command: SetDataKey) -> None:
        """Commit a data key.

        Raises:
            RequestTimedOutError: The voters have no majority.
        """
        await self._cluster.command_client.submit(command, timeout_s=SUBMIT_TIMEOUT_S)

    def _due(self) -> Iterable[Partition]:
        """Return a led partition of each topic whose newest data key is missing or too old."""
        security, now_ms = self._cluster.metadata.state.security, self._env.clock.now_ms()
        due: dict[bytes, Partition] = {}
        for partition in self._partitions.all():
            if partition.leader is None or not partition.config.is_encrypted:
                continue
            keys = security.data_keys(partition.topic_id)
            rotation_ms = partition.config.data_key_rotation_ms
            if not keys or (
                rotation_ms is not None and keys[max(keys)].created_at_ms + rotation_ms <= now_ms
            ):
                due.setdefault(partition.topic_id, partition)
        return due.values()

    def _heard(self, delta: BrokerDelta) -> None:
        version = self._cluster.metadata.state.security.version
        has_changed = version != self._security_version
        self._security_version = version
        if has_changed or delta.altered_topics:
            self._has_news.set()

    def _led(self, partition: Partition) -> None:
        if partition.config.is_encrypted:
            self._has_news.set()

    def _report(self) -> None:
        """Report the topics that became unusable here, and usable again, in one line for each."""
        locked: dict[bytes, str] = {}
        names: dict[bytes, str] = {}
        for partition in self._partitions.all():
            if partition.cipher is not None and partition.topic_id not in names:
                names[partition.topic_id] = partition.topic
                reason = partition.why_locked
                if reason is not None:
                    locked[partition.topic_id] = reason
        self.locked_partition_count = sum(
            partition.topic_id in locked for partition in self._partitions.all()
        )
        new = [topic_id for topic_id in locked if topic_id not in self._locked]
        gone = [names[each] for each in self._locked if each in names and each not in locked]
        self._locked = locked
        if new:
            self._env.probe(
                "data_keys_unavailable",
                severity="error",
                count=len(new),
                topics=_shown([names[each] for each in new]),
                reason=locked[new[0]],
            )
        if gone:
            self._env.probe("data_keys_available", count=len(gone), topics=_shown(gone))


def _shown(topics: list[str]) -> list[str]:
    return sorted(topics)[:_TOPICS_SHOWN]
