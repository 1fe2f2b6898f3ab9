"""Which message of a group comes after which, in files, for backlogs that memory is too small for.

Shell: owns the files of one directory. Decides nothing; calls are plain, as those of
`logstore.disk`: what was used lately is in memory, the rest mostly in the page cache.

    NUMBER                   blocks NUMBER * 256 to NUMBER * 256 + 255, 32,784 bytes each
      0    4  CRC-32C of all other bytes of the block
      4    4  0
      8    8  number of the block, so that one in the place of another is noticed
     16       4096 links of 8 bytes, of the offsets from 4096 times that number on

All integers are little-endian. These files are scratch: they are removed when the broker begins to
serve the queue, so nothing is synced, and no version of the format meets another one. A block that
cannot be read, or is not what was written, is not believed and not mended: all links are made from
the log again (`LinksLostError`), for they belong together. When the disk is full or broken, blocks
that cannot be written stay in memory.
"""

import struct
import sys
from array import array
from collections import OrderedDict
from typing import Final, final

from crc32c import crc32c

from logstore.disk import Disk, File
from queue_layer.next_in_group import BLOCK_OFFSETS, NO_LINK, LinksLostError, put_link

_CRC: Final = struct.Struct("<I")
_REST_OF_HEADER: Final = struct.Struct("<IQ")
_HEADER_SIZE: Final = _CRC.size + _REST_OF_HEADER.size
_BLOCK_SIZE: Final = _HEADER_SIZE + 8 * BLOCK_OFFSETS
_FILE_BLOCKS: Final = 256
assert sys.byteorder == "little", "links are stored as they are in memory"


@final
class SpilledLinks:
    """A number for each offset; some blocks are in memory, the others in files.

    Invariant: a block that is not in memory was written whole since it changed last.
    """

    __slots__ = (
        "_blocks",
        "_blocks_max",
        "_changed",
        "_directory",
        "_disk",
        "_files",
        "_first_block",
        "_written",
    )

    def __init__(self, disk: Disk, directory: str, *, blocks_in_memory_max: int = 256) -> None:
        """Begin with no numbers, in a directory that is nobody else's and is emptied.

        Raises:
            OSError: The directory cannot be emptied or made.
        """
        self._disk = disk
        self._directory = directory
        self._blocks_max = blocks_in_memory_max
        """32 kB each."""
        self._blocks: OrderedDict[int, array[int]] = OrderedDict()
        """Those in memory; the one used last is last."""
        self._changed: set[int] = set()
        """Those in memory that are not in their file as they are."""
        self._written: set[int] = set()
        """Those that are in a file."""
        self._files: dict[int, File] = {}
        self._first_block = 0
        """Blocks below it were dropped."""
        self.clear()

    @property
    def blocks_in_memory(self) -> int:
        """How many blocks take memory."""
        return len(self._blocks)

    def get(self, offset: int) -> int:
        """Return the number of an offset, `NO_LINK` if it has none.

        Raises:
            LinksLostError: Its block cannot be read as it was written.
        """
        block = self._block(offset // BLOCK_OFFSETS)
        place = offset % BLOCK_OFFSETS
        return block[place] if block is not None and place < len(block) else NO_LINK

    def put(self, offset: int, link: int) -> None:
        """Give an offset this number.

        Raises:
            LinksLostError: Its block cannot be read as it was written.
        """
        number = offset // BLOCK_OFFSETS
        block = self._block(number)
        if block is None:
            if number < self._first_block:
                return
            block = self._blocks[number] = array("q")
            self._make_room()
        put_link(block, offset % BLOCK_OFFSETS, link)
        self._changed.add(number)

    def drop_below(self, offset: int) -> None:
        """Drop the blocks all of whose offsets are lower, and remove files of nothing else."""
        end = offset // BLOCK_OFFSETS
        if end <= self._first_block:
            return
        self._first_block = end
        for number in [number for number in self._blocks if number < end]:
            del self._blocks[number]
        self._changed = {number for number in self._changed if number >= end}
        self._written = {number for number in self._written if number >= end}
        for number in [number for number in self._files if (number + 1) * _FILE_BLOCKS <= end]:
            self._files.pop(number).close()
            self._disk.remove(self._path(number))

    def clear(self) -> None:
        """Forget everything; offsets may begin at any number again.

        Raises:
            OSError: The directory cannot be emptied or made.
        """
        self.close()
        self._blocks.clear()
        self._changed.clear()
        self._written.clear()
        self._first_block = 0
        self._disk.remove_directory(self._directory)
        self._disk.make_directory(self._directory)

    def close(self) -> None:
        """Close the files. Nobody asks for anything any more."""
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _block(self, number: int) -> "array[int] | None":
        """Return a block, which is in memory then."""
        block = self._blocks.get(number)
        if block is not None:
            self._blocks.move_to_end(number)
        elif number in self._written:
            block = self._blocks[number] = self._read(number)
            self._make_room()
        return block

    def _make_room(self) -> None:
        """Write blocks that were not used for long, and let go of them."""
        while len(self._blocks) > self._blocks_max:
            number, block = next(iter(self._blocks.items()))
            if number in self._changed:
                try:
                    self._write(number, block)
                except OSError:
                    # It stays in memory, as the one used last: the next one is tried next time.
                    self._blocks.move_to_end(number)
                    return
                self._changed.discard(number)
                self._written.add(number)
            del self._blocks[number]

    def _write(self, number: int, block: "array[int]") -> None:
        links = bytes(block) + bytes(array("q", [NO_LINK])) * (BLOCK_OFFSETS - len(block))
        rest = _REST_OF_HEADER.pack(0, number)
        header = _CRC.pack(crc32c(links, crc32c(rest))) + rest
        # Until it is written whole, the file has no such block to go back to.
        self._written.discard(number)
        self._file(number).write_at(_position(number), [header, links])

    def _read(self, number: int) -> "array[int]":
        try:
            data = self._file(number).read_at(_position(number), _BLOCK_SIZE)
        except OSError as error:
            raise LinksLostError(f"block {number} cannot be read: {error}") from error
        if (
            len(data) != _BLOCK_SIZE
            or _CRC.unpack_from(data)[0] != crc32c(memoryview(data)[_CRC.size :])
            or _REST_OF_HEADER.unpack_from(data, _CRC.size) != (0, number)
        ):
            raise LinksLostError(f"block {number} is not what was written")
        links = array("q")
        links.frombytes(memoryview(data)[_HEADER_SIZE:])
        return links

    def _file(self, number: int) -> File:
        """Return the file for a block, open."""
        place = number // _FILE_BLOCKS
        file = self._files.get(place)
        if file is None:
            file = self._files[place] = self._disk.open(self._path(place), create=True)
        return file

    def _path(self, file_number: int) -> str:
        return f"{self._directory}/{file_number:020}"


def _position(number: int) -> int:
    """Return where a block begins in its file."""
    return number % _FILE_BLOCKS * _BLOCK_SIZE
