"""The disk interface, through which logs access all files.

Pure: declarations. `logstore.disk.os_disk` is the real disk. Tests and the simulator have others,
which lose writes, tear writes, flip bits, fail and run full.

All calls are synchronous. Writes and reads of cached data go to the page cache and return at once.
`sync`, reads of cold data and removals may block, and shells run them through
`wire.env.env.ThreadPool`. Paths are relative to the disk's root, with `/` between names.
"""

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.wire.env.env import BytesLike

DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
"""Numbers of an `OSError` that mean a full disk."""
NO_DESCRIPTOR_ERRNOS: Final = (errno.EMFILE, errno.ENFILE)
"""Numbers of an `OSError` that mean no free file descriptor. Only the opening of a file fails so,
or a sync of a directory before it begins. So earlier writes are in no doubt."""
PASSING_ERRNOS: Final = (*DISK_FULL_ERRNOS, *NO_DESCRIPTOR_ERRNOS)
"""Numbers of transient errors, which may be retried. Any other number means a failed disk."""


class File(Protocol):
    """An open file. Reads and writes are positional; only `sync` makes bytes durable."""

    def fileno(self) -> int | None:
        """Return the descriptor for `sendfile`, `None` where there is none."""
        ...

    def size(self) -> int:
        """Return the length in bytes."""
        ...

    def read_at(self, position: int, length: int) -> bytes:
        """Return up to `length` bytes, fewer only at the end of the file; may block.

        Raises:
            OSError: The disk failed.
        """
        ...

    def is_cached(self, position: int, length: int) -> bool:
        """Return whether a read of these bytes would not wait, as far as a cheap check tells."""
        ...

    def write_at(self, position: int, pieces: Sequence[BytesLike]) -> None:
        """Write all pieces in order.

        Raises:
            OSError: `ENOSPC` or another failure; a part may have been written.
        """
        ...

    def truncate(self, size: int) -> None:
        """Cut or extend with zeros to `size` bytes."""
        ...

    def sync(self) -> None:
        """Make all bytes written before this call, and the length, durable; blocks.

        Raises:
            OSError: The state on disk is unknown; never call it again on this file.
        """
        ...

    def drop_cache(self) -> None:
        """Drop cached clean pages, so that the next read returns the bytes on disk."""
        ...

    def close(self) -> None:
        """Close; closing twice is allowed. Running reads finish."""
        ...


class DirectoryLock(Protocol):
    """A held lock on a directory; the operating system releases it when the process ends."""

    def release(self) -> None:
        """Release the lock."""
        ...


class ReadableDisk(Protocol):
    """The read-only part of a disk: a `Disk`, or a disk without write access."""

    @property
    def root(self) -> str:
        """Path of the root, for messages."""
        ...

    def open(self, path: str) -> File:
        """Open an existing file.

        Raises:
            FileNotFoundError: The file does not exist.
            OSError: The file cannot be opened.
        """
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is no such directory."""
        ...


class Disk(Protocol):
    """A tree of files. Names (create, rename, remove) are durable only after `sync_directory`."""

    @property
    def root(self) -> str:
        """Path of the root, for messages."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; `create` creates an empty file if it is missing.

        Raises:
            FileNotFoundError: The file does not exist and `create` is false.
            OSError: The disk failed, or there are too many open files.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether a file or directory of this name exists."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is no such directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Create a directory and its parents; an existing directory is no error."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; a missing file is no error."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory and its content; a missing directory is no error."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; blocks."""
        ...

    def free_bytes(self) -> int:
        """Return the number of free bytes."""
        ...

    def total_bytes(self) -> int:
        """Return the size of the file system."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Lock the tree for this process with a file of this name.

        Raises:
            DataDirectoryError: Another process holds the lock; the message names it.
        """
        ...
