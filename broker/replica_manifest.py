"""Which replicas were made in this data directory, so that none is lost unnoticed.

Shell: owns the file `replicas`. A replica is entered, durably, when its log is on the disk with a
checkpoint, and before it takes a role. So one that is entered and has no files has lost them; one
that is not, and has none, never had any, and nobody has counted a record of it.

A replica that has lost its files is *in doubt* until the cluster counts on it no more. That is kept
here as well: opening its log makes files, and the next start would find nothing amiss.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, final

import msgspec
import trio

from coordinator.cluster.delta import Key
from logstore.checkpoint import DamagedFileError, read_small_file, write_small_file
from logstore.disk import Disk
from wire.env import Env

MANIFEST_NAME: Final = "replicas"


class ReplicaInDoubt(msgspec.Struct, frozen=True, array_like=True):
    """A replica that may have lost records at the end of its log."""

    topic_id: bytes
    partition: int
    is_empty: bool
    """Whether nothing is left of it."""


class ManifestContent(msgspec.Struct, frozen=True, array_like=True):
    """What is in the file."""

    replicas: list[tuple[bytes, list[int]]]
    """Topic ids, with numbers of partitions."""
    in_doubt: list[ReplicaInDoubt]


@final
class ReplicaManifest:
    """The replicas of one data directory.

    Invariant: what `has` says is on the disk, unless the manifest was lost.
    """

    def __init__(self, env: Env, disk: Disk) -> None:
        """Know of no replica before `load`."""
        self._env = env
        self._disk = disk
        self._saving = trio.Lock()
        self._wanted: dict[Key, None] = {}
        """As it shall be."""
        self._saved: frozenset[Key] = frozenset()
        """As it is on the disk."""
        self._in_doubt: dict[Key, ReplicaInDoubt] = {}
        self.is_lost = False
        """Whether it was there once and cannot be read: any replica may have been entered."""

    @property
    def in_doubt(self) -> Mapping[Key, ReplicaInDoubt]:
        """Replicas that may have lost records, and of which the cluster has not been told yet."""
        return self._in_doubt

    def has(self, key: Key) -> bool:
        """Return whether a replica was made here."""
        return key in self._saved

    async def load(self, *, is_expected: bool) -> None:
        """Read what an earlier process has written; `is_expected` if one has.

        Raises:
            OSError: The disk failed.
            DataDirectoryError: A newer version has written it.
        """
        try:
            content = await self._env.offload(
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
        self._wanted = {
            (topic_id, number): None for topic_id, numbers in content.replicas for number in numbers
        }
        self._saved = frozenset(self._wanted)
        self._in_doubt = {(each.topic_id, each.partition): each for each in content.in_doubt}

    async def begin(
        self, replicas: Collection[Key], in_doubt: Iterable[ReplicaInDoubt], *, is_new: bool
    ) -> None:
        """Have no others than these, of which some are found to be in doubt; durably.

        Args:
            replicas: Those that this broker is to have; some of them may not be made yet.
            in_doubt: Those that have lost files since the last start.
            is_new: Whether there must be a manifest although nothing is in it.

        Raises:
            OSError: The disk is full or failed.
        """
        before = (dict(self._wanted), dict(self._in_doubt))
        if self.is_lost:
            self._wanted = dict.fromkeys(each for each in replicas)
        for each in in_doubt:
            self._in_doubt[each.topic_id, each.partition] = each
        self._wanted = {key: None for key in self._wanted if key in replicas}
        self._in_doubt = {key: each for key, each in self._in_doubt.items() if key in replicas}
        if self.is_lost or is_new or before != (self._wanted, self._in_doubt):
            await self._save()
        self.is_lost = False

    async def add(self, key: Key) -> None:
        """Enter a replica, durably; many at a time cost hardly more than one.

        Raises:
            OSError: The disk is full or failed; it is not entered.
        """
        self._wanted[key] = None
        async with self._saving:
            if key in self._saved or key not in self._wanted:
                return
            try:
                await self._write()
            except OSError:
                self._wanted.pop(key, None)
                raise

    async def remove(self, keys: Iterable[Key]) -> None:
        """Forget replicas, durably, before their files are removed.

        Raises:
            OSError: The disk is full or failed; the next start knows that they are not to be here.
        """
        gone = [key for key in keys if key in self._wanted]
        for key in gone:
            del self._wanted[key]
            self._in_doubt.pop(key, None)
        if gone:
            await self._save()

    async def remove_topic(self, topic_id: bytes) -> None:
        """Forget all replicas of a topic; as `remove`."""
        await self.remove([key for key in self._wanted if key[0] == topic_id])

    async def settle(self) -> None:
        """Take note that the cluster counts on none of those in doubt any more, durably.

        Raises:
            OSError: The disk is full or failed.
        """
        if self._in_doubt:
            self._in_doubt = {}
            await self._save()

    async def _save(self) -> None:
        async with self._saving:
            await self._write()

    async def _write(self) -> None:
        topics: dict[bytes, list[int]] = {}
        for topic_id, number in self._wanted:
            topics.setdefault(topic_id, []).append(number)
        written = frozenset(self._wanted)
        content = ManifestContent(list(topics.items()), list(self._in_doubt.values()))
        await self._env.offload(lambda: write_small_file(self._disk, MANIFEST_NAME, content))
        self._saved = written
