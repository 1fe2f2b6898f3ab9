"""Open files and loaded indexes of all logs, the most recently used ones.

A bound for file descriptors and memory: idle partitions keep nothing open. What falls out is
only dropped, not closed by force, so whoever still uses a file (a sync in a thread, a region
queued for sending) finishes; the file closes with its last reference.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import final

from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS, Disk, File
from tidelog.logstore.segments.offset_index import OffsetIndex


@final
class FileCache:
    """Least recently used open files and indexes, by path.

    May be used from several threads, for logs are opened in one while others are served in
    another: every step is one call that the interpreter does not divide, and the worst that two
    threads can do to each other is to open a file twice.
    """

    def __init__(self, disk: Disk, *, max_open_files: int = 512, indexes_max: int = 64) -> None:
        """Keep at most `max_open_files` files open and `indexes_max` indexes loaded."""
        self.disk = disk
        self._max_open_files = max_open_files
        self._indexes_max = indexes_max
        self._files: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[str, OffsetIndex] = OrderedDict()

    def file(self, path: str, *, create: bool = False) -> File:
        """Return the open file at `path`.

        Raises:
            OSError: It cannot be opened.
        """
        file = self._files.pop(path, None)
        if file is None:
            file = self.open_apart(path, create=create)
        self._files[path] = file
        if len(self._files) > self._max_open_files:
            self._files.popitem(last=False)
        return file

    def index(self, path: str, load: Callable[[], OffsetIndex]) -> OffsetIndex:
        """Return the index at `path`, from `load` when it is not in memory."""
        index = self._indexes.pop(path, None)
        if index is None:
            index = load()
        self._indexes[path] = index
        if len(self._indexes) > self._indexes_max:
            self._indexes.popitem(last=False)
        return index

    def forget(self, path: str) -> None:
        """Drop what is known of a path that is removed or replaced."""
        self._files.pop(path, None)
        self._indexes.pop(path, None)

    def clear(self) -> None:
        """Drop everything; whoever needs it opens or loads it again."""
        self._files.clear()
        self._indexes.clear()

    def open_apart(self, path: str, *, create: bool = False) -> File:
        """Return a file that is not kept here; if no more can be open, the ones here are closed.

        Raises:
            OSError: It cannot be opened.
        """
        try:
            return self.disk.open(path, create=create)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                raise
        # Others (connections, above all) took what was left: give back ours.
        self._files.clear()
        return self.disk.open(path, create=create)
