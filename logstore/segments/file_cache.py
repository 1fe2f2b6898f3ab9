"""LRU cache of open files and loaded indexes of all logs.

It bounds file descriptors and memory: idle partitions keep nothing open. The cache drops evicted
files without closing them, so a user of a file (a sync in a thread, a region queued for sending)
finishes; the file closes with its last reference.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import final

from tidelog.logstore.disk.disk import NO_DESCRIPTOR_ERRNOS, Disk, File
from tidelog.logstore.segments.offset_index import OffsetIndex


@final
class FileCache:
    """Least recently used open files and indexes, by path.

    Several threads may use it, because a thread opens logs while another one serves logs. Every
    step is one atomic call of the interpreter, so at worst two threads open a file twice.
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
            OSError: The file cannot be opened.
        """
        file = self._files.pop(path, None)
        if file is None:
            file = self.open_apart(path, create=create)
        self._files[path] = file
        if len(self._files) > self._max_open_files:
            self._files.popitem(last=False)
        return file

    def index(self, path: str, load: Callable[[], OffsetIndex]) -> OffsetIndex:
        """Return the index at `path`; call `load` if it is not in memory."""
        index = self._indexes.pop(path, None)
        if index is None:
            index = load()
        self._indexes[path] = index
        if len(self._indexes) > self._indexes_max:
            self._indexes.popitem(last=False)
        return index

    def forget(self, path: str) -> None:
        """Drop file and index of a path that is removed or replaced."""
        self._files.pop(path, None)
        self._indexes.pop(path, None)

    def clear(self) -> None:
        """Drop everything; later calls open and load again."""
        self._files.clear()
        self._indexes.clear()

    def open_apart(self, path: str, *, create: bool = False) -> File:
        """Return an uncached file; without a free descriptor, drop the cached files first.

        Raises:
            OSError: The file cannot be opened.
        """
        try:
            return self.disk.open(path, create=create)
        except OSError as error:
            if error.errno not in NO_DESCRIPTOR_ERRNOS:
                raise
        # Other users (connections, above all) took the last descriptors: release ours.
        self._files.clear()
        return self.disk.open(path, create=create)
