"""The disk of the operating system.

Shell: owns file descriptors. The production implementation of `logstore.disk.disk`, and the only
module of `logstore` that calls the operating system. It caches nothing about the disk, so no state
here can be stale.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import final

from tidelog.wire.env.env import BytesLike
from tidelog.wire.errors import DataDirectoryError

# Only the owner may read records; a group may get read access for backups.
_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750

_PIECES_MAX = os.sysconf("SC_IOV_MAX")
_CACHE_PROBE_STRIDE_BYTES = 64 * 1024

# Zero if the C library that Python was built for does not have the flag.
_RWF_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)


@final
class OsFile:
    """An open file of the operating system.

    Invariant: the descriptor is closed when the last reference to this object is gone, and not
    before. A sync in a thread and a region queued for sending hold a reference. So a descriptor in
    use is never closed, and its number never reused for another file, without any lock. `close`
    therefore forbids only further changes.
    """

    __slots__ = ("_descriptor", "_is_closed")

    def __init__(self, descriptor: int) -> None:
        """Take over a descriptor that is open for reading and writing."""
        self._descriptor = descriptor
        self._is_closed = False

    def __del__(self) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor; it is valid as long as the caller holds this file."""
        return self._descriptor

    def size(self) -> int:
        """Return the length in bytes."""
        return os.fstat(self._descriptor).st_size

    def read_at(self, position: int, length: int) -> bytes:
        """See `logstore.disk.disk.File`."""
        data = os.pread(self._descriptor, length, position)
        while len(data) < length:
            # The end of the file, or a short read, which some file systems return.
            more = os.pread(self._descriptor, length - len(data), position + len(data))
            if not more:
                break
            data += more
        return data

    def is_cached(self, position: int, length: int) -> bool:
        """Probe single bytes of the range in the page cache, without waiting.

        Always true if the file system does not support it; a read then blocks the caller's loop.
        """
        if not length or not _RWF_NOWAIT:
            return True
        last = position + length - 1
        byte = [bytearray(1)]
        try:
            for probe in (*range(position, last, _CACHE_PROBE_STRIDE_BYTES), last):
                os.preadv(self._descriptor, byte, probe, _RWF_NOWAIT)
        except OSError as error:
            # The read reports every other error, and a read may block.
            return error.errno in {errno.EOPNOTSUPP, errno.ENOSYS}
        return True

    def write_at(self, position: int, pieces: Sequence[BytesLike]) -> None:
        """See `logstore.disk.disk.File`."""
        assert not self._is_closed, "write to a closed file"
        pending = pieces
        while pending:
            written = os.pwritev(self._descriptor, pending[:_PIECES_MAX], position)
            if len(pending) == 1 and written == len(pending[0]):
                return
            position += written
            pending = _after(pending, written)

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to `size` bytes."""
        assert not self._is_closed, "truncation of a closed file"
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        """See `logstore.disk.disk.File`. A sync after `close` is as good as one before."""
        os.fdatasync(self._descriptor)

    def drop_cache(self) -> None:
        """See `logstore.disk.disk.File`. Pages that are not synced yet stay."""
        os.posix_fadvise(self._descriptor, 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Forbid further changes. Holders of the file can still read and sync it."""
        self._is_closed = True


def _after(pieces: Sequence[BytesLike], count: int) -> list[BytesLike]:
    """Return what follows the first `count` bytes of `pieces`."""
    for index, piece in enumerate(pieces):
        if count < len(piece):
            return [memoryview(piece)[count:], *pieces[index + 1 :]]
        count -= len(piece)
    return []


@final
class OsDirectoryLock:
    """A held `flock`. It lasts until `release` or the end of the process, referenced or not."""

    __slots__ = ("_descriptor",)

    def __init__(self, descriptor: int) -> None:
        """Take over the descriptor of a locked file."""
        self._descriptor: int | None = descriptor

    def release(self) -> None:
        """Release the lock; releasing twice is allowed. The file stays.

        Removing the file would let two processes hold locks on two files of one name.
        """
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


@final
class OsDisk:
    """A directory of the operating system's file system."""

    def __init__(self, root: str) -> None:
        """Use the directory `root`; create it durably if it is missing.

        Raises:
            DataDirectoryError: It cannot be created, is not a directory, or is not writable.
        """
        self._root = Path(root).absolute()
        self._prefix = f"{self._root}/"
        try:
            _make_durable_directory(self._root)
        except OSError as error:
            raise DataDirectoryError(
                f"data directory {self._root} cannot be created: {error.strerror}; "
                "choose another --data-dir"
            ) from error
        if not os.access(self._root, os.R_OK | os.W_OK | os.X_OK, effective_ids=True):
            raise DataDirectoryError(
                f"data directory {self._root} cannot be read and written by user {os.geteuid()}; "
                "change its owner or choose another --data-dir"
            )

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return str(self._root)

    def open(self, path: str, *, create: bool = False) -> OsFile:
        """See `logstore.disk.disk.Disk`."""
        flags = os.O_RDWR | (os.O_CREAT if create else 0)
        return OsFile(os.open(self._path(path), flags, _FILE_MODE))

    def exists(self, path: str) -> bool:
        """See `logstore.disk.disk.Disk`."""
        # Not `Path.exists`: it reports a failed disk as a missing file.
        try:
            self._at(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def list_directory(self, path: str) -> list[str]:
        """See `logstore.disk.disk.Disk`."""
        try:
            return sorted(os.listdir(self._path(path)))  # noqa: PTH208  (a tenth of the time)
        except FileNotFoundError:
            return []

    def make_directory(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        directory = self._root
        # One by one, because `mkdir(parents=True)` gives parents another mode.
        for name in self._at(path).relative_to(self._root).parts:
            directory /= name
            directory.mkdir(_DIRECTORY_MODE, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        self._at(source).rename(self._at(target))

    def remove(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        self._at(path).unlink(missing_ok=True)

    def remove_directory(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        assert path, "the root is not removed"
        # Checked first, because `rmtree` fails for names that vanish during the removal.
        if self.exists(path):
            shutil.rmtree(self._at(path))

    def sync_directory(self, path: str) -> None:
        """See `logstore.disk.disk.Disk`."""
        _sync_directory(self._at(path))

    def free_bytes(self) -> int:
        """Return the number of free bytes for an ordinary user."""
        status = os.statvfs(self._root)
        return status.f_bavail * status.f_frsize

    def total_bytes(self) -> int:
        """Return the size of the file system of the root."""
        status = os.statvfs(self._root)
        return status.f_blocks * status.f_frsize

    def lock(self, path: str) -> OsDirectoryLock:
        """See `logstore.disk.disk.Disk`.

        Raises:
            DataDirectoryError: Another process holds the lock, or the disk supports no lock.
        """
        try:
            descriptor = os.open(self._at(path), os.O_RDWR | os.O_CREAT, _FILE_MODE)
        except OSError as error:
            raise self._not_lockable(error) from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The process id is for messages only; the lock itself excludes others.
            os.ftruncate(descriptor, os.pwrite(descriptor, b"%d\n" % os.getpid(), 0))
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DataDirectoryError(
                f"data directory {self._root} is in use by process {holder or 'unknown'}; "
                "stop it or choose another --data-dir"
            ) from None
        except OSError as error:
            os.close(descriptor)
            raise self._not_lockable(error) from error
        return OsDirectoryLock(descriptor)

    def _not_lockable(self, error: OSError) -> DataDirectoryError:
        return DataDirectoryError(
            f"data directory {self._root} cannot be locked: {error.strerror}; "
            "free or repair its disk, or choose another --data-dir"
        )

    def _path(self, path: str) -> str:
        """Return `_at` as text, which takes a fifth of the time."""
        assert not path or {"", ".", ".."}.isdisjoint(path.split("/")), f"{path!r} escapes the root"
        return f"{self._prefix}{path}"

    def _at(self, path: str) -> Path:
        """Return the absolute path; the empty path is the root."""
        return Path(self._path(path))


@final
class OsFolder:
    """A directory with read-only access."""

    def __init__(self, root: str) -> None:
        """Read the files below the directory `root`."""
        self._root = Path(root).absolute()

    @property
    def root(self) -> str:
        """The absolute path of the directory."""
        return str(self._root)

    def open(self, path: str) -> OsFile:
        """See `logstore.disk.disk.ReadableDisk`."""
        return OsFile(os.open(self._root / path, os.O_RDONLY))

    def list_directory(self, path: str) -> list[str]:
        """See `logstore.disk.disk.ReadableDisk`."""
        try:
            return sorted(each.name for each in (self._root / path).iterdir())
        except FileNotFoundError:
            return []

    def files_below(self, path: str) -> list[str]:
        """Return the paths of all files below a directory, or the path of one file.

        Files are sorted by directory, then by name.

        Raises:
            OSError: The path does not exist, or cannot be read.
        """
        place = self._root / path
        if not place.is_dir():
            place.stat()
            return [path]
        found: list[Path] = []
        for directory, _, names in os.walk(place, onerror=_raise, followlinks=False):
            found.extend(Path(directory) / name for name in names)
        found.sort(key=lambda each: (each.parent.as_posix(), each.name))
        return [each.relative_to(self._root).as_posix() for each in found]

    def lock_shared(self, path: str) -> OsDirectoryLock:
        """Lock the tree with this file against exclusive locks; the file must exist.

        Raises:
            DataDirectoryError: A process holds the lock; the message names it.
            OSError: The file cannot be opened or locked.
        """
        descriptor = os.open(self._root / path, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise DataDirectoryError(
                f"data directory {self._root} is in use by process {holder or 'unknown'}; stop it"
            ) from None
        except OSError:
            os.close(descriptor)
            raise
        return OsDirectoryLock(descriptor)


def _raise(error: OSError) -> None:
    raise error


def _make_durable_directory(path: Path) -> None:
    """Create a directory and its parents, and make their names durable."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(_DIRECTORY_MODE, exist_ok=True)
        _sync_directory(each.parent)
    if not path.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
