"""Open files and loaded indexes of all logs, the most recently used ones.

A bound for file descriptors and memory: idle partitions keep nothing open. What falls out is
only dropped, not closed by force, so whoever still uses a file (a sync in a thread, a region
queued for sending) finishes; the file closes with its last reference.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import final

from logstore.disk import Disk, File
from logstore.index import SegmentIndex


@final
class FileCache:
    """Least recently used open files and indexes, by path."""

    def __init__(self, disk: Disk, *, open_files_max: int = 512, indexes_max: int = 64) -> None:
        """Keep at most `open_files_max` files open and `indexes_max` indexes loaded."""
        self.disk = disk
        self._open_files_max = open_files_max
        self._indexes_max = indexes_max
        self._files: OrderedDict[str, File] = OrderedDict()
        self._indexes: OrderedDict[str, SegmentIndex] = OrderedDict()

    def file(self, path: str, *, create: bool = False) -> File:
        """Return the open file at `path`.

        Raises:
            OSError: It cannot be opened.
        """
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = self.disk.open(path, create=create)
            if len(self._files) > self._open_files_max:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(path)
        return file

    def index(self, path: str, load: Callable[[], SegmentIndex]) -> SegmentIndex:
        """Return the index at `path`, from `load` when it is not in memory."""
        index = self._indexes.get(path)
        if index is None:
            index = self._indexes[path] = load()
            if len(self._indexes) > self._indexes_max:
                self._indexes.popitem(last=False)
        else:
            self._indexes.move_to_end(path)
        return index

    def forget(self, path: str) -> None:
        """Drop what is known of a path that is removed or replaced."""
        self._files.pop(path, None)
        self._indexes.pop(path, None)
