"""Manifest of the replicas that were created in this data directory, to detect lost ones.

Shell: owns the file `replicas`. A replica is added, durably, when its log is on the disk with a
checkpoint, and before it takes a role. So a replica in the manifest without files has lost them. A
replica outside the manifest without files never had any, and no acknowledgement rests on its
records.

A replica that has lost its files is *suspect* until it is neither in the ISR nor eligible. The
manifest records that as well: opening its log creates files, and the next start would not see the
loss.
"""

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, final

import msgspec
import trio

from tidelog.coordinator.metadata.broker_delta import Key
from tidelog.logstore.checkpoint import DamagedFileError, read_small_file, write_small_file
from tidelog.logstore.disk.disk import Disk
from tidelog.wire.env.env import Env

MANIFEST_NAME: Final = "replicas"


class SuspectReplica(msgspec.Struct, frozen=True, array_like=True):
    """A replica that may have lost records at the end of its log."""

    topic_id: bytes
    partition: int
    is_empty: bool
    """Whether no files are left."""


class ManifestContent(msgspec.Struct, frozen=True, array_like=True):
    """Contents of the file."""

    replicas: list[tuple[bytes, list[int]]]
    """Topic ids, with numbers of partitions."""
    suspects: list[SuspectReplica]


@final
class ReplicaManifest:
    """The replicas of one data directory.

    Invariant: every replica for which `has` returns true is in the file, unless the manifest was
    lost.
    """

    def __init__(self, env: Env, disk: Disk) -> None:
        """Start without replicas, before `load`."""
        self._env = env
        self._disk = disk
        self._saving = trio.Lock()
        self._replicas: dict[bytes, tuple[bytes, list[int]]] = {}
        """Desired contents, by topic; numbers in order. They are kept in the form of the file,
        which is written again and again while many replicas are created. Making twenty thousand
        tuples each time would have the garbage collector scan all objects."""
        self._unsaved: set[Key] = set()
        """Replicas that may not be in the file yet."""
        self._suspects: dict[Key, SuspectReplica] = {}
        self.is_lost = False
        """Whether the file existed once and cannot be read: any replica may have been in it."""

    @property
    def suspects(self) -> Mapping[Key, SuspectReplica]:
        """Replicas that may have lost records, which the cluster has not recorded yet."""
        return self._suspects

    def has(self, key: Key) -> bool:
        """Return whether a replica was created here."""
        return self._is_wanted(key) and key not in self._unsaved

    def numbers(self, topic_id: bytes) -> Sequence[int]:
        """Return the numbers of the partitions of a topic, in order."""
        return self._numbers(topic_id)

    async def load(self, *, is_expected: bool) -> None:
        """Read the file of an earlier process; `is_expected` if one has written it.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A newer version wrote the file.
        """
        try:
            content = await self._env.run_in_thread(
                lambda: read_small_file(self._disk, MANIFEST_NAME, ManifestContent)
            )
        except DamagedFileError as error:
            self._env.probe("replica_manifest_lost", severity="error", reason=str(error))
            self.is_lost = True
            return
        if content is None:
            self.is_lost = is_expected
            if is_expected:
                reason = f"{self._disk.root}/{MANIFEST_NAME} is missing"
                self._env.probe("replica_manifest_lost", severity="error", reason=reason)
            return
        self._replicas = {
            topic_id: (topic_id, sorted(numbers)) for topic_id, numbers in content.replicas
        }
        self._suspects = {(each.topic_id, each.partition): each for each in content.suspects}

    async def begin(
        self, replicas: Collection[Key], suspects: Iterable[SuspectReplica], *, is_new: bool
    ) -> None:
        """Reduce the manifest to these replicas, and add suspects; durably.

        Args:
            replicas: Replicas assigned to this broker; some may not be created yet.
            suspects: Replicas that have lost files since the last start.
            is_new: Whether a manifest must be written even if it is empty.

        Raises:
            OSError: The disk is full or failed.
        """
        before = (self._keys(), dict(self._suspects))
        for each in suspects:
            self._suspects[each.topic_id, each.partition] = each
        for key in before[0].difference(replicas):
            self._forget(key)
        self._suspects = {key: each for key, each in self._suspects.items() if key in replicas}
        if self.is_lost:
            for key in replicas:
                self._enter(key)
        if self.is_lost or is_new or before != (self._keys(), self._suspects):
            await self._save()
        self.is_lost = False

    async def add(self, key: Key) -> None:
        """Add a replica, durably; many at a time cost hardly more than one.

        Raises:
            OSError: The disk is full or failed; the replica is not added.
        """
        self._enter(key)
        async with self._saving:
            if key not in self._unsaved:
                return  # Another call has written it, or it was removed meanwhile.
            try:
                await self._write()
            except OSError:
                self._forget(key)
                raise

    async def remove(self, keys: Iterable[Key]) -> None:
        """Remove replicas, durably, before their files are removed.

        Raises:
            OSError: The disk is full or failed; the next start removes them by the metadata.
        """
        gone = [key for key in keys if self._is_wanted(key)]
        for key in gone:
            self._forget(key)
            self._suspects.pop(key, None)
        if gone:
            await self._save()

    async def remove_topic(self, topic_id: bytes) -> None:
        """Remove all replicas of a topic; as `remove`."""
        await self.remove([(topic_id, number) for number in self._numbers(topic_id)])

    async def settle(self) -> None:
        """Record that no suspect replica is in the ISR or eligible any more, durably.

        Raises:
            OSError: The disk is full or failed.
        """
        if self._suspects:
            self._suspects = {}
            await self._save()

    def _keys(self) -> set[Key]:
        return {
            (topic_id, number)
            for topic_id, numbers in self._replicas.values()
            for number in numbers
        }

    def _numbers(self, topic_id: bytes) -> list[int]:
        return self._replicas.get(topic_id, (topic_id, []))[1]

    def _is_wanted(self, key: Key) -> bool:
        numbers = self._numbers(key[0])
        place = bisect_left(numbers, key[1])
        return place < len(numbers) and numbers[place] == key[1]

    def _enter(self, key: Key) -> None:
        if not self._is_wanted(key):
            insort(self._replicas.setdefault(key[0], (key[0], []))[1], key[1])
            self._unsaved.add(key)

    def _forget(self, key: Key) -> None:
        self._unsaved.discard(key)
        if self._is_wanted(key):
            numbers = self._numbers(key[0])
            numbers.remove(key[1])
            if not numbers:
                del self._replicas[key[0]]

    async def _save(self) -> None:
        async with self._saving:
            await self._write()

    async def _write(self) -> None:
        entering = set(self._unsaved)
        content = ManifestContent(list(self._replicas.values()), list(self._suspects.values()))
        # Encoded here, since the contents may change while a thread writes them.
        encoded = msgspec.Raw(msgspec.msgpack.encode(content))
        await self._env.run_in_thread(lambda: write_small_file(self._disk, MANIFEST_NAME, encoded))
        self._unsaved -= entering
