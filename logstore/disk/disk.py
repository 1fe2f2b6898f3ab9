"""The disk seam: every contact of a log with files.

Pure: declarations. `logstore.disk.os_disk` is the real disk; tests and the simulator have others,
which lose, tear, flip, fail and run full.

All calls are plain. Writes and reads of cached data go to the page cache and return at once;
`sync`, reads of cold data and removals may block, and shells run them through
`wire.env.env.ThreadPool`. Paths are relative to the disk's root, with `/` between names.
"""

import errno
from collections.abc import Sequence
from typing import Final, Protocol

from tidelog.wire.env.env import BytesLike

DISK_FULL_ERRNOS: Final = (errno.ENOSPC, errno.EDQUOT)
"""The numbers of an `OSError` that say: there is no room."""
NO_DESCRIPTOR_ERRNOS: Final = (errno.EMFILE, errno.ENFILE)
"""Those that say: no more files can be open for now. Only opening one ends so, and a sync of a
directory before it has begun; so nothing is in doubt that was written before."""
PASSING_ERRNOS: Final = (*DISK_FULL_ERRNOS, *NO_DESCRIPTOR_ERRNOS)
"""What passes by itself, and may be tried again. Anything else is a disk that failed."""


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
        """Return whether these bytes can, as far as a cheap look tells, be read without waiting."""
        ...

    def write_at(self, position: int, pieces: Sequence[BytesLike]) -> None:
        """Write all pieces one after the other.

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
            OSError: Nothing is known about what is on disk; never call it again on this file.
        """
        ...

    def drop_cache(self) -> None:
        """Forget cached clean pages, so that the next read sees what is really on disk."""
        ...

    def close(self) -> None:
        """Close; closing twice is allowed. Reads that are under way elsewhere finish."""
        ...


class DirectoryLock(Protocol):
    """A held lock on a directory; the operating system releases it when the process ends."""

    def release(self) -> None:
        """Release the lock."""
        ...


class ReadableDisk(Protocol):
    """What is asked of a disk by those who only look: a `Disk`, or one that nobody may write to."""

    @property
    def root(self) -> str:
        """Where it is, for messages."""
        ...

    def open(self, path: str) -> File:
        """Open an existing file.

        Raises:
            FileNotFoundError: There is none.
            OSError: It cannot be opened.
        """
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is no such directory."""
        ...


class Disk(Protocol):
    """A tree of files. Names (create, rename, remove) are durable only after `sync_directory`."""

    @property
    def root(self) -> str:
        """Where the tree is, for messages."""
        ...

    def open(self, path: str, *, create: bool = False) -> File:
        """Open a file for reading and writing; `create` makes an empty one if there is none.

        Raises:
            FileNotFoundError: There is no such file and `create` is false.
            OSError: The disk failed, or there are too many open files.
        """
        ...

    def exists(self, path: str) -> bool:
        """Return whether there is a file or directory of this name."""
        ...

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted; empty when there is no such directory."""
        ...

    def make_directory(self, path: str) -> None:
        """Make a directory and its parents; nothing happens when it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Rename a file or directory, replacing a file `target`."""
        ...

    def remove(self, path: str) -> None:
        """Remove a file; nothing happens when there is none."""
        ...

    def remove_directory(self, path: str) -> None:
        """Remove a directory and all that is in it; nothing happens when there is none."""
        ...

    def sync_directory(self, path: str) -> None:
        """Make the names in a directory durable; blocks."""
        ...

    def free_bytes(self) -> int:
        """Return how many bytes can still be written."""
        ...

    def lock(self, path: str) -> DirectoryLock:
        """Lock the tree for this process, by a file of this name.

        Raises:
            DataDirectoryError: Another process holds the lock; the message names it.
        """
        ...
