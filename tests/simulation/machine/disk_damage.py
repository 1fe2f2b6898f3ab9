"""Damage to files at rest: flipped bits, truncated, missing and stale files.

A stale file is the result of a disk that acknowledges writes and loses them: every checksum in an
earlier state of a file is correct.
"""

from collections.abc import Iterable, Mapping
from enum import Enum
from random import Random

from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.file_tree import SECTOR_BYTES

_WHOLE_FILES = 0.5
_BITS_PER_FILE = 2
"""Flipped bits per file; about as many as in Jepsen's tests of NATS."""


class Damage(Enum):
    """Kinds of damage to a file."""

    BITS = "some of its bits are flipped"
    SHORT = "it is truncated"
    EMPTY = "it is empty"
    GONE = "it is missing"


def damage_file(disk: FaultyDisk, path: str, damage: Damage, *, random: Random) -> None:
    """Damage a file; an empty file stays empty, or is removed."""
    size = len(disk.durable_bytes(path))
    match damage:
        case Damage.BITS:
            for _ in range(_BITS_PER_FILE if size else 0):
                disk.flip_bit(path, random.randrange(size), random.randrange(8))
        case Damage.SHORT:
            # Mostly a few bytes, sometimes almost all.
            disk.cut_file(path, size - min(size, int((size + 1) ** random.random())))
        case Damage.EMPTY:
            disk.cut_file(path, 0)
        case Damage.GONE:
            disk.lose_file(path)


def durable_state(disk: FaultyDisk, paths: Iterable[str]) -> dict[str, bytes]:
    """Return the durable bytes of these files."""
    return {path: disk.durable_bytes(path) for path in paths}


def bring_back(disk: FaultyDisk, earlier: Mapping[str, bytes], random: Random) -> int:
    """Restore an earlier state of files that still exist, wholly or in some sectors.

    Returns the number of files that have changed.
    """
    changed_count = 0
    paths = set(disk.paths())
    for path, data in earlier.items():
        if path not in paths:
            continue
        before = disk.durable_bytes(path)
        if random.random() < _WHOLE_FILES:
            disk.put_back(path, data)
        else:
            for start in range(0, min(len(data), len(before)), SECTOR_BYTES):
                if random.getrandbits(1):
                    end = min(start + SECTOR_BYTES, len(before))
                    disk.damage(path, start, data[start:end])
        changed_count += disk.durable_bytes(path) != before
    return changed_count
