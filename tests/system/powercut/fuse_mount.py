"""Mounted file that is a simulated disk, with a thread for its requests.

Shell: owns the descriptor of `/dev/fuse`, the mount and the thread. Needs root. No code in this
process may touch the mounted file, or the file system on it, in a call that holds the interpreter's
lock, because the answering thread needs that lock too. Other programs may.
"""

import ctypes
import errno
import os
import subprocess
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from tests.system.powercut.fuse_file import FILE_NAME, REQUEST_BYTES_MAX, WRITE_BYTES_MAX, FuseFile

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def mounted(
    file: FuseFile, between_requests: threading.Lock, directory: Path
) -> Generator[Path, None, None]:
    """Mount a file system with one file at `directory`; yield the path of the file.

    The holder of `between_requests` has exclusive access to the disk.

    Raises:
        OSError: It cannot be mounted.
    """
    descriptor = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={descriptor},rootmode=40000,user_id=0,group_id=0,max_read={WRITE_BYTES_MAX}"
    if _libc.mount(b"tidelog", os.fsencode(directory), b"fuse", 0, options.encode()):
        number = ctypes.get_errno()
        os.close(descriptor)
        raise OSError(number, f"cannot mount {directory}: {os.strerror(number)}")
    thread = threading.Thread(target=_serve, args=(descriptor, file, between_requests), daemon=True)
    thread.start()
    try:
        yield directory / FILE_NAME
    finally:
        subprocess.run(["umount", "--lazy", str(directory)], check=True)
        thread.join()


def _serve(descriptor: int, file: FuseFile, between_requests: threading.Lock) -> None:
    """Answer one request after the other until the file system is unmounted.

    If an answer fails, the close of the descriptor makes all further requests fail: none hangs.
    """
    try:
        while (request := _next_request(descriptor)) is not None:
            with between_requests:
                reply = file.answer(request)
            if reply is not None:
                _send(descriptor, reply)
    finally:
        os.close(descriptor)


def _next_request(descriptor: int) -> bytes | None:
    while True:
        try:
            return os.read(descriptor, REQUEST_BYTES_MAX)
        except OSError as error:
            if error.errno == errno.ENODEV:
                return None
            if error.errno not in {errno.ENOENT, errno.EINTR}:  # The request was cancelled.
                raise


def _send(descriptor: int, reply: bytes) -> None:
    try:
        os.write(descriptor, reply)
    except OSError as error:
        if error.errno != errno.ENOENT:  # The requesting process no longer waits.
            raise
