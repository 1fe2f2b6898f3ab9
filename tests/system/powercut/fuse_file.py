"""The kernel's FUSE protocol, as far as a file that is a disk needs it.

Pure: requests in, replies out. The file system has one file, `disk`, of a fixed size. The kernel
caches nothing of it (`FOPEN_DIRECT_IO`). So every write of a block device on top of it arrives here
at once, and every flush as an fsync. `linux/fuse.h` has the layouts; numbers are in the byte order
of the host, which must be little-endian.
"""

import errno
from enum import IntEnum
from struct import Struct
from typing import final

from tests.system.powercut.power_switch import PowerSwitch
from tests.system.powercut.volatile_disk import BLOCK_BYTES, VolatileDisk

FILE_NAME = "disk"
WRITE_BYTES_MAX = 1 << 20
REQUEST_BYTES_MAX = WRITE_BYTES_MAX + 4096

_MAJOR, _MINOR = 7, 31
_ROOT_ID, _FILE_ID = 1, 2
_FOREVER_S = 1 << 30
_BIG_WRITES, _MAX_PAGES = 1 << 5, 1 << 22
_FOPEN_DIRECT_IO = 1
_DIRECTORY, _REGULAR = 0o040700, 0o100600
_NAME_BYTES_MAX = 255

_REQUEST = Struct("<IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extensions, -
_REPLY = Struct("<IiQ")
_ATTRIBUTES = Struct("<QQQ 24x 12x I I 4x4x4x I 4x")  # node, size, blocks, mode, links, block
_ENTRY = Struct("<QQQQII")
_VALID = Struct("<QII")
_OPENED = Struct("<QII")
_INIT = Struct("<IIIIHHIIHH 32x")
_READ = Struct("<QQI")
_WRITE = Struct("<QQI")
_WRITE_HEADER_BYTES = 40
_WRITTEN = Struct("<I4x")
_STATFS = Struct("<QQQQQIII 4x 24x")


class Opcode(IntEnum):
    """Supported requests; others are answered with `ENOSYS`."""

    LOOKUP = 1
    FORGET = 2
    GETATTR = 3
    SETATTR = 4
    OPEN = 14
    READ = 15
    WRITE = 16
    STATFS = 17
    RELEASE = 18
    FSYNC = 20
    FLUSH = 25
    INIT = 26
    INTERRUPT = 36
    DESTROY = 38
    BATCH_FORGET = 42


_UNANSWERED = {Opcode.FORGET, Opcode.BATCH_FORGET, Opcode.INTERRUPT}
_ALWAYS_FINE = {Opcode.RELEASE, Opcode.FLUSH, Opcode.DESTROY}


@final
class FuseFile:
    """Answers the kernel for one mounted disk."""

    def __init__(self, disk: VolatileDisk, switch: PowerSwitch) -> None:
        """Serve `disk`, and report its requests to `switch`."""
        self._disk = disk
        self._switch = switch

    def answer(self, request: bytes) -> bytes | None:
        """Return the reply to a request, `None` when there is none."""
        length, opcode, unique, node, *_ = _REQUEST.unpack_from(request)
        if opcode in _UNANSWERED:
            return None
        try:
            body = self._reply(opcode, node, request[_REQUEST.size : length])
        except OSError as error:
            return _REPLY.pack(_REPLY.size, -(error.errno or errno.EIO), unique)
        return _REPLY.pack(_REPLY.size + len(body), 0, unique) + body

    def _reply(self, opcode: int, node: int, body: bytes) -> bytes:  # noqa: PLR0911  (a table)
        match opcode:
            case Opcode.READ:
                _, position, size = _READ.unpack_from(body)
                return self._disk.read(position, size)
            case Opcode.WRITE:
                return self._write(body)
            case Opcode.FSYNC:
                return self._flush()
            case Opcode.INIT:
                return _init(body)
            case Opcode.LOOKUP:
                return self._look_up(body)
            case Opcode.GETATTR | Opcode.SETATTR:
                return _VALID.pack(_FOREVER_S, 0, 0) + self._attributes(node)
            case Opcode.OPEN:
                return _OPENED.pack(0, _FOPEN_DIRECT_IO, 0)
            case Opcode.STATFS:
                return _STATFS.pack(0, 0, 0, 0, 0, BLOCK_BYTES, _NAME_BYTES_MAX, BLOCK_BYTES)
            case _ if opcode in _ALWAYS_FINE:
                return b""
            case _:
                raise OSError(errno.ENOSYS, f"FUSE request {opcode} is not known here")

    def _write(self, body: bytes) -> bytes:
        _, position, size = _WRITE.unpack_from(body)
        data = body[_WRITE_HEADER_BYTES : _WRITE_HEADER_BYTES + size]
        self._disk.write(position, data)
        self._switch.wrote(data)
        return _WRITTEN.pack(size)

    def _flush(self) -> bytes:
        self._switch.will_flush()
        self._disk.flush()
        self._switch.flushed()
        return b""

    def _look_up(self, body: bytes) -> bytes:
        if body.rstrip(b"\0") != FILE_NAME.encode():
            raise FileNotFoundError(errno.ENOENT, "there is only one file")
        return _ENTRY.pack(_FILE_ID, 0, _FOREVER_S, _FOREVER_S, 0, 0) + self._attributes(_FILE_ID)

    def _attributes(self, node: int) -> bytes:
        is_root = node == _ROOT_ID
        size = 0 if is_root else self._disk.size_bytes
        mode = _DIRECTORY if is_root else _REGULAR
        return _ATTRIBUTES.pack(node, size, size // 512, mode, 1, BLOCK_BYTES)


def _init(body: bytes) -> bytes:
    read_ahead = int.from_bytes(body[8:12], "little")
    flags = int.from_bytes(body[12:16], "little") & (_BIG_WRITES | _MAX_PAGES)
    pages_max = WRITE_BYTES_MAX // BLOCK_BYTES
    return _INIT.pack(_MAJOR, _MINOR, read_ahead, flags, 16, 12, WRITE_BYTES_MAX, 1, pages_max, 0)
