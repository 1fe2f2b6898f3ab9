"""A machine that can lose its power: a real broker process on ext4, on a simulated disk.

Shell: mounts, starts processes, and removes all of it. From the top:

    tidelog serve            a process of its own, started like a user's
    ext4                     the kernel's, with its journal, mounted with default options
    /dev/loopN               a block device on a file; passes flushes on as fsync
    FUSE                     passes every request on at once, and caches nothing
    `VolatileDisk`           our disk, with a volatile write cache

The captured state is one that a power cut can leave. The disk is one thread, which handles one
request at a time. It captures between two requests (or inside of a flush, before it begins or after
it is done). So the capture is a cut through the requests at one moment. It has everything that a
completed flush has covered, and some arbitrary choice of later sectors. A file system learns that a
flush is done only by the reply, which comes after. A copy of an image file that a loop device
writes to is no such state. It takes time, so it may have writes from behind a flush and lack writes
from before it.
"""

import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import final

import trio

from tests.system.integration.processes import TIDELOG, BrokerProcess, serving
from tests.system.powercut.fuse_file import FuseFile
from tests.system.powercut.fuse_mount import mounted
from tests.system.powercut.power_switch import PowerSwitch
from tests.system.powercut.volatile_disk import VolatileDisk

DISK_BYTES = 64 << 20
_MKFS = ["mkfs.ext4", "-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0,lazy_journal_init=0"]
"""Everything is written at once, so that a thin disk has space for all but new data."""


@final
class Machine:
    """A disk, its faults, and its two mount points."""

    def __init__(self, disk: VolatileDisk, switch: PowerSwitch, workshop: Path) -> None:
        """Mount in `workshop`, which is an existing directory."""
        self.disk = disk
        self.switch = switch
        self._between_requests = threading.Lock()
        self._below = workshop / "below"
        self._above = workshop / "above"
        self._below.mkdir(exist_ok=True)
        self._above.mkdir(exist_ok=True)

    def cut_power(self) -> None:
        """Cut the power now, if it was not cut before."""
        with self._between_requests:
            self.switch.pull()

    @asynccontextmanager
    async def mounted(self, *, is_new: bool) -> AsyncGenerator[Path, None]:
        """Mount the file system while the block runs; create it first if the disk is new.

        Raises:
            OSError: The file system cannot be created or mounted.
        """
        with mounted(FuseFile(self.disk, self.switch), self._between_requests, self._below) as file:
            if is_new:
                await run(*_MKFS, str(file))
                with self._between_requests:
                    self.disk.flush()  # mkfs does not flush.
            await run("mount", "-o", "loop", str(file), str(self._above))
            try:
                yield self._above
            finally:
                with trio.CancelScope(shield=True):
                    await run("umount", str(self._above))

    @asynccontextmanager
    async def running(
        self, *, is_new: bool, program: Sequence[str] = TIDELOG
    ) -> AsyncGenerator[BrokerProcess, None]:
        """Run a broker until the block ends; then kill it."""
        async with (
            self.mounted(is_new=is_new) as root,
            serving(root / "data", program=program) as broker,
        ):
            yield broker


async def run(*command: str) -> str:
    """Run a command to its end.

    Raises:
        OSError: It failed; with its output.
    """
    result = await trio.run_process(
        list(command), capture_stdout=True, capture_stderr=True, check=False
    )
    if result.returncode:
        said = result.stderr.decode(errors="replace").strip()
        raise OSError(f"{' '.join(command)}: {said or result.returncode}")
    return result.stdout.decode()
