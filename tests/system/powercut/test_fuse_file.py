"""Tests of the FUSE protocol, request by request, and with one really mounted disk."""

import errno
import struct

from tests.system.powercut.fuse_file import FILE_NAME, FuseFile, Opcode
from tests.system.powercut.power_switch import Moment, PowerSwitch
from tests.system.powercut.volatile_disk import VolatileDisk

SIZE = 1 << 16
UNIQUE = 77
REGULAR, DIRECTORY = 0o100600, 0o040700


def a_file(disk: VolatileDisk) -> FuseFile:
    return FuseFile(disk, PowerSwitch(Moment.WRITE, lambda: None, number=1))


def request(opcode: int, body: bytes = b"", *, node: int = 2) -> bytes:
    header = struct.pack("<IIQQIIIHH", 40 + len(body), opcode, UNIQUE, node, 0, 0, 0, 0, 0)
    return header + body


def ask(file: FuseFile, opcode: int, body: bytes = b"", *, node: int = 2) -> tuple[int, bytes]:
    """Return the error number, which is 0 or less, and the body of the reply."""
    reply = file.answer(request(opcode, body, node=node))
    assert reply is not None
    length, error, unique = struct.unpack_from("<IiQ", reply)
    assert (length, unique) == (len(reply), UNIQUE)
    return error, reply[16:]


def write_body(position: int, data: bytes) -> bytes:
    return struct.pack("<QQIIQII", 1, position, len(data), 0, 0, 0, 0) + data


def test_the_handshake_agrees_on_a_version_and_large_writes() -> None:
    asked = struct.pack("<IIII", 7, 45, 131072, 0xFFFF_FFFF).ljust(64, b"\0")

    error, body = ask(a_file(VolatileDisk(SIZE)), Opcode.INIT, asked)

    major, minor, read_ahead, flags, _, _, write_bytes_max = struct.unpack_from("<IIIIHHI", body)
    assert (error, len(body)) == (0, 64)
    assert (major, minor, read_ahead, write_bytes_max) == (7, 31, 131072, 1 << 20)
    assert flags == (1 << 5) | (1 << 22), "of all that is offered, large writes only"


def test_the_file_system_has_one_file_of_the_disk_size() -> None:
    file = a_file(VolatileDisk(SIZE))

    error, entry = ask(file, Opcode.LOOKUP, FILE_NAME.encode() + b"\0", node=1)
    other, _ = ask(file, Opcode.LOOKUP, b"other\0", node=1)
    _, root = ask(file, Opcode.GETATTR, node=1)

    assert error == 0
    assert len(entry) == 40 + 88
    node, size, blocks = struct.unpack_from("<QQQ", entry, 40)
    assert (node, size, blocks) == (2, SIZE, SIZE // 512)
    assert struct.unpack_from("<I", entry, 40 + 60) == (REGULAR,)
    assert other == -errno.ENOENT
    assert len(root) == 16 + 88
    assert struct.unpack_from("<I", root, 16 + 60) == (DIRECTORY,)


def test_writes_are_readable_and_only_a_flush_makes_them_durable() -> None:
    disk = VolatileDisk(SIZE)
    file = a_file(disk)

    assert ask(file, Opcode.WRITE, write_body(512, b"hello")) == (0, struct.pack("<II", 5, 0))
    unflushed_bytes = disk.unflushed_bytes
    read = ask(file, Opcode.READ, struct.pack("<QQIIQII", 1, 510, 10, 0, 0, 0, 0))
    flushed = ask(file, Opcode.FSYNC, struct.pack("<QII", 1, 1, 0))

    assert unflushed_bytes == 5
    assert read == (0, b"\0\0hello\0\0\0")
    assert flushed == (0, b"")
    assert disk.unflushed_bytes == 0


def test_the_file_is_opened_with_direct_io() -> None:
    error, body = ask(a_file(VolatileDisk(SIZE)), Opcode.OPEN, struct.pack("<II", 2, 0))

    assert (error, struct.unpack("<QII", body)[1]) == (0, 1)


def test_a_write_that_the_disk_refuses_is_an_error() -> None:
    disk = VolatileDisk(SIZE)
    disk.refusal = errno.EIO

    assert ask(a_file(disk), Opcode.WRITE, write_body(0, b"x")) == (-errno.EIO, b"")


def test_an_unknown_request_is_answered_with_enosys() -> None:
    fallocate = 43

    assert ask(a_file(VolatileDisk(SIZE)), fallocate)[0] == -errno.ENOSYS


def test_a_forget_request_has_no_reply() -> None:
    assert a_file(VolatileDisk(SIZE)).answer(request(Opcode.FORGET, bytes(8))) is None
