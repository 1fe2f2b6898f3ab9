"""In-memory disk with injectable faults: lost and torn writes, bit flips, errors, no space.

It implements `logstore.disk.disk` on `tests.simulation.machine.file_tree`. A test that crashes
continues with another disk: `kill` returns the disk that the next process sees, and `power_cut` the
disk after the next boot of the machine. Both may be called again, for another outcome of the same
crash. The old disk, its files and its lock are dead from then on.

It is deterministic: the same calls and the same `Random` give the same results. Syncs may run in
another thread while files and names change in this one.
"""

import errno
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from random import Random
from typing import final

from tests.simulation.machine.file_tree import (
    Change,
    Directory,
    FileTree,
    Inode,
    Naming,
    Survival,
    os_error,
    resize,
)
from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import DataDirectoryError

_UNLIMITED_BYTES = 1 << 50
_PROCESS_ID = 1

_CHANGING_OPERATIONS = {
    "create", "write_at", "truncate", "sync",
    "make_directory", "rename", "remove", "remove_directory", "sync_directory",
}  # fmt: skip

Call = tuple[str | int, ...]
"""An operation, its path, and further arguments: target, size, or position and length."""


@final
class StaleHandleError(BaseException):
    """The process that made this call is dead, so no handler in it may catch this."""


@dataclass(slots=True)
class _Failure:
    operation: str
    path: str | None
    error_number: int
    skipped_count: int
    count: int


@final
class FaultyFile:
    """An open file of a `FaultyDisk`. `path` is the one it was opened by."""

    def __init__(self, disk: "FaultyDisk", path: str, inode: Inode) -> None:
        """Create a file; only `FaultyDisk.open` does."""
        self.path = path
        self._disk = disk
        self._inode = inode
        self._is_closed = False

    def fileno(self) -> None:
        """Return `None`: an in-memory file has no descriptor."""

    def size(self) -> int:
        """Return the length in bytes."""
        self._disk.enter("size", self.path)
        return len(self._inode.cached)

    def read_at(self, position: int, length: int) -> bytes:
        """See `disk.File`."""
        self._disk.enter("read_at", self.path, position, length)
        return bytes(self._inode.cached[position : position + length])

    def is_cached(self, position: int, length: int) -> bool:
        """Return whether no test has marked this path as cold."""
        self._disk.enter("is_cached", self.path, position, length)
        return self.path not in self._disk.cold_paths

    def write_at(self, position: int, pieces: Sequence[BytesLike]) -> None:
        """See `disk.File`. A full disk writes as many bytes as fit."""
        assert not self._is_closed, "write to a closed file"
        data = b"".join(pieces)
        self._disk.enter("write_at", self.path, position, len(data))
        room_end = len(self._inode.cached) + self._disk.room_bytes()
        taken = data[: max(0, room_end - position)]
        if taken:
            self._inode.change(Change(position, taken))
        if len(taken) < len(data):
            raise os_error(errno.ENOSPC, self.path)

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to `size` bytes."""
        assert not self._is_closed, "truncation of a closed file"
        self._disk.enter("truncate", self.path, size)
        self._inode.change(Change(size))

    def sync(self) -> None:
        """See `disk.File`. A failure drops the unsynced changes; see `Inode.fail_sync`."""
        changes = self._inode.unsynced[:]  # This sync does not cover later changes.
        try:
            self._disk.enter("sync", self.path)
        except OSError:
            self._inode.fail_sync(changes, self._disk.failed_sync_random)
            raise
        self._inode.sync(changes)

    def drop_cache(self) -> None:
        """See `logstore.disk.disk.File`."""
        self._disk.enter("drop_cache", self.path)
        self._inode.drop_cache()

    def close(self) -> None:
        """Refuse changes; reads and syncs continue, as with `logstore.disk.os_disk.OsFile`."""
        self._disk.enter("close", self.path)
        self._is_closed = True


@final
class FaultyLock:
    """The held lock of a `FaultyDisk`."""

    def __init__(self, disk: "FaultyDisk", path: str) -> None:
        """Create a lock; only `FaultyDisk.lock` does."""
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Release the lock."""
        self._disk.enter("release", self._path)
        self._disk.locked_paths.discard(self._path)


@final
class FaultyDisk:
    """One process's view of an in-memory disk, without faults until they are injected."""

    def __init__(self, *, root: str = "/faulty", capacity_bytes: int | None = None) -> None:
        """Start empty, with room for `capacity_bytes` in all files together."""
        self.root = root
        self.capacity_bytes = capacity_bytes
        """`None` for a disk that is never full; may be changed at any time."""
        self.calls: list[Call] = []
        """All calls so far, including failed ones."""
        self.before_call: Callable[[str, str], None] | None = None
        """Hook with operation and path of a call, before it takes effect.

        If it raises an `OSError`, only that call fails. If it raises any other exception, that is a
        crash: every later call fails, whatever the code under test still tries.
        """
        self.failed_sync_random: Random | None = None
        """Chooses the sectors that a failed sync leaves on the disk; `None` for none."""
        self.cold_paths: set[str] = set()
        """Paths of files that report that none of their bytes is cached."""
        self.locked_paths: set[str] = set()
        self.survivals: dict[str, Survival] = {}
        """Survival of each file that had unsynced changes at the power cut before this boot."""
        self._tree = FileTree()
        self._failures: list[_Failure] = []
        self._is_dead = False

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        """See `logstore.disk.disk.Disk`; recorded as `create` when it creates the file."""
        is_new = create and self._tree.get(path) is None
        self.enter("create" if is_new else "open", path)
        if is_new:
            self._require_room(path)
        if create and self._tree.get(path) is None:  # Another call may have created it meanwhile.
            self._tree.change(Naming(*self._tree.parent(path), Inode()))
        return FaultyFile(self, path, self._inode(path))

    def exists(self, path: str) -> bool:
        """See `logstore.disk.disk.Disk`."""
        self.enter("exists", path)
        return self._tree.get(path) is not None

    def list_directory(self, path: str) -> list[str]:
        """See `logstore.disk.disk.Disk`."""
        self.enter("list_directory", path)
        try:
            return sorted(self._tree.directory(path).entries)
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        self.enter("make_directory", path)
        directory = self._tree.root
        for name in path.split("/") if path else ():
            node = directory.entries.get(name)
            if isinstance(node, Inode):
                raise os_error(errno.EEXIST, path)
            if node is None:
                self._require_room(path)
                node = Directory()
                self._tree.change(Naming(directory, name, node))
            directory = node

    def rename(self, source: str, target: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        self.enter("rename", source, target)
        source_parent, source_name = self._tree.parent(source)
        target_parent, target_name = self._tree.parent(target)
        node = self._tree.find(source)
        self._check_target(source, target)
        self._tree.change(
            Naming(source_parent, source_name, None), Naming(target_parent, target_name, node)
        )

    def remove(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        self.enter("remove", path)
        try:
            self._inode(path)
        except FileNotFoundError:
            return
        self._tree.change(Naming(*self._tree.parent(path), None))

    def remove_directory(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        self.enter("remove_directory", path)
        if self._tree.get(path) is not None:
            self._empty(self._tree.directory(path))
            self._tree.change(Naming(*self._tree.parent(path), None))

    def sync_directory(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        changes = self._tree.unsynced[:]
        self.enter("sync_directory", path)
        self._tree.sync(self._tree.directory(path), changes)

    def free_bytes(self) -> int:
        """Return the number of bytes that can still be written."""
        self.enter("free_bytes", "")
        return self.room_bytes()

    def total_bytes(self) -> int:
        """Return the size of the disk; as much as there is, if it has no bound."""
        return self.room_bytes()

    def lock(self, path: str) -> FaultyLock:
        """See `logstore.disk.disk.Disk`. The holder is always this process."""
        self.enter("lock", path)
        if path in self.locked_paths:
            raise DataDirectoryError(
                f"data directory {self.root} is in use by process {_PROCESS_ID}; "
                "stop it or choose another --data-dir"
            )
        if self._tree.get(path) is None:
            self._tree.change(Naming(*self._tree.parent(path), Inode()))
        self.locked_paths.add(path)
        return FaultyLock(self, path)

    @property
    def changes(self) -> list[Call]:
        """The calls that durability depends on: no reads, and `open` only where it created."""
        return [call for call in self.calls if call[0] in _CHANGING_OPERATIONS]

    def fail(
        self,
        operation: str,
        *,
        path: str | None = None,
        error_number: int = errno.EIO,
        nth: int = 1,
        count: int = 1,
    ) -> None:
        """Let `count` calls fail with an error, beginning with the `nth` from now on.

        Only calls of `operation`, and of `path` when it is given, are counted and fail.
        """
        self._failures.append(_Failure(operation, path, error_number, nth - 1, count))

    def durable_bytes(self, path: str) -> bytes:
        """Return the durable bytes of a file, even if its name is not durable."""
        return bytes(self._inode(path).durable)

    def paths(self) -> list[str]:
        """Return the paths of all files, without a call that could fail."""
        return [path for path, _ in self._tree.files()]

    def names_seen_or_durable(self, path: str) -> set[str]:
        """Return the names in a directory that a process sees, or may see after a power cut."""
        directory = self._tree.directory(path)
        return set(directory.entries) | set(directory.durable)

    def visible_bytes(self, path: str) -> bytes:
        """Return the bytes of a file as processes see them, without a call that could fail."""
        return bytes(self._inode(path).cached)

    def damage(self, path: str, position: int, data: bytes) -> None:
        """Replace durable bytes, as bit rot, or as a stale or a misdirected sector."""
        inode = self._inode(path)
        assert position + len(data) <= len(inode.durable), "only durable bytes are at rest"
        Change(position, data).apply(inode.durable)
        Change(position, data[: max(0, len(inode.cached) - position)]).apply(inode.cached)

    def flip_bit(self, path: str, position: int, bit: int) -> None:
        """Flip one bit of a durable byte; 0 is its lowest."""
        byte = self._inode(path).durable[position]
        self.damage(path, position, bytes([byte ^ 1 << bit]))

    def cut_file(self, path: str, size: int) -> None:
        """Truncate a file, durable or not."""
        inode = self._inode(path)
        inode.unsynced.clear()
        for image in inode.durable, inode.cached:
            resize(image, min(size, len(image)))

    def lose_file(self, path: str) -> None:
        """Remove the name of a file, durable or not; open handles still see its bytes."""
        self._tree.lose(path)

    def put_back(self, path: str, data: bytes) -> None:
        """Restore an earlier state of a file, as if it had not been written since."""
        inode = self._inode(path)
        inode.unsynced.clear()
        for image in inode.durable, inode.cached:
            image[:] = data

    def kill(self) -> "FaultyDisk":
        """End the process; return the disk of the next one, with all written bytes."""
        self._is_dead = True
        return self.copy()

    def copy(self) -> "FaultyDisk":
        """Return another disk with the same files, as a backup or a snapshot has them."""
        copied = FaultyDisk(root=self.root, capacity_bytes=self.capacity_bytes)
        copied._tree = deepcopy(self._tree)
        copied.failed_sync_random = self.failed_sync_random
        return copied

    def power_cut(self, random: Random, *, are_names_in_order: bool = True) -> "FaultyDisk":
        """Cut the power; return the disk of the next boot, with one outcome of unsynced changes.

        Unless names are in order, any changes of them survive.
        """
        successor = self.kill()
        successor.survivals = successor._tree.cut_power(
            random, are_names_in_order=are_names_in_order
        )
        return successor

    def enter(self, operation: str, path: str, *details: str | int) -> None:
        """Begin a call: record it, and fail or crash if that is due.

        Raises:
            OSError: This call is to fail.
            StaleHandleError: The process is dead.
        """
        if self._is_dead:
            raise StaleHandleError(f"{operation} {path} of a dead process")
        self.calls.append((operation, path, *details))
        if self.before_call is not None:
            try:
                self.before_call(operation, path)
            except OSError:
                raise
            except BaseException:
                self._is_dead = True
                raise
        for failure in self._failures:
            if failure.operation == operation and failure.path in {None, path}:
                if failure.skipped_count:
                    failure.skipped_count -= 1
                elif failure.count:
                    failure.count -= 1
                    raise os_error(failure.error_number, path)

    def room_bytes(self) -> int:
        """Return the number of bytes that files can still grow by."""
        if self.capacity_bytes is None:
            return _UNLIMITED_BYTES
        used_bytes = sum(len(inode.cached) for _, inode in self._tree.files())
        return max(0, self.capacity_bytes - used_bytes)

    def _require_room(self, path: str) -> None:
        if not self.room_bytes():
            raise os_error(errno.ENOSPC, path)

    def _inode(self, path: str) -> Inode:
        node = self._tree.find(path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def _check_target(self, source: str, target: str) -> None:
        """Refuse a rename like Linux, in the same order."""
        node, replaced = self._tree.find(source), self._tree.get(target)
        if target.startswith(f"{source}/"):
            raise os_error(errno.EINVAL, source)
        if source.startswith(f"{target}/"):
            raise os_error(errno.ENOTEMPTY, target)
        if replaced is None or replaced is node:
            return
        if isinstance(node, Inode):
            if isinstance(replaced, Directory):
                raise os_error(errno.EISDIR, target)
        elif isinstance(replaced, Inode):
            raise os_error(errno.ENOTDIR, target)
        elif replaced.entries:
            raise os_error(errno.ENOTEMPTY, target)

    def _empty(self, directory: Directory) -> None:
        for name, node in sorted(directory.entries.items(), key=lambda entry: entry[0]):
            if isinstance(node, Directory):
                self._empty(node)
            self._tree.change(Naming(directory, name, None))
