"""Guarantees of an acknowledgement. Rows compare equal promises only.

Pure.
"""

from enum import Enum


class Promise(Enum):
    """Guarantee for an acknowledged message."""

    MEMORY_ONE = "memory-one"
    FSYNC_ONE = "fsync-one"
    MEMORY_THREE = "memory-three"
    FSYNC_THREE = "fsync-three"

    @property
    def meaning(self) -> str:
        """Description of the guarantee."""
        return _MEANINGS[self]

    @property
    def node_count(self) -> int:
        """Number of servers."""
        return 3 if self in (Promise.MEMORY_THREE, Promise.FSYNC_THREE) else 1

    @property
    def is_fsync(self) -> bool:
        """Whether acknowledged messages survive a power cut of all machines."""
        return self in (Promise.FSYNC_ONE, Promise.FSYNC_THREE)


_MEANINGS = {
    Promise.MEMORY_ONE: (
        "one copy, handed to the operating system: it survives the end of the server's process,"
        " however sudden, and not a power cut"
    ),
    Promise.FSYNC_ONE: "one copy, on disk (fsync or fdatasync returned): it survives a power cut",
    Promise.MEMORY_THREE: (
        "three servers, two of which at least have handed it to their operating systems: it"
        " survives the loss of one machine, and not a power cut of all"
    ),
    Promise.FSYNC_THREE: (
        "three servers, two of which at least have it on disk: it survives the loss of one machine"
        " and a power cut of all"
    ),
}
