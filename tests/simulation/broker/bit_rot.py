"""Damage to data at rest that a log can prove: bits and sectors.

The last batches of a log are exempt. The disk has no proof yet that they were durable, so a reader
cannot tell bad bytes there from a torn tail.
"""

from typing import NamedTuple

from tests.simulation.machine.disk_contents import contents
from tests.simulation.machine.faulty_disk import FaultyDisk
from tests.simulation.machine.file_tree import SECTOR_BYTES
from tidelog.logstore.segments.segment import INDEX_SUFFIX, LOG_SUFFIX
from tidelog.logstore.segments.segment_format import (
    SEGMENT_FOOTER_SIZE,
    SEGMENT_HEADER_SIZE,
    parse_segment_footer,
)
from tidelog.wire.batch.record_batch import BatchHeader, has_valid_payload, parse_header

_NO_END = 1 << 62
_FRAME_BYTES = SEGMENT_HEADER_SIZE + SEGMENT_FOOTER_SIZE


class StoredBatch(NamedTuple):
    """A batch that was once durable, as later batches in its file prove."""

    path: str
    partition: int
    position: int
    header: BatchHeader


def provable_batches(disk: FaultyDisk, topic: str) -> list[StoredBatch]:
    """Return all batches of a topic whose damage is provable."""
    found: list[StoredBatch] = []
    ends: dict[int, int] = {}
    for path in sorted(contents(disk)):
        parts = path.split("/")
        if path.startswith(f"topics/{topic}.") and path.endswith(".log"):
            partition = int(parts[2])
            batches = intact_batches(disk.durable_bytes(path), path, partition)
            if batches and batches[0].header.base_offset < ends.get(partition, 0):
                continue  # Compaction has left it behind, and the next start removes it.
            if batches:
                ends[partition] = batches[-1].header.next_offset
            proven = max((batch.header.durable_position for batch in batches), default=0)
            found += [batch for batch in batches if batch.position + batch.header.size <= proven]
    return found


class StoredSector(NamedTuple):
    """A sector of a segment, with the offsets of its batches."""

    path: str
    partition: int
    position: int
    offset: int
    next_offset: int
    """Exclusive end."""


def provable_sectors(disk: FaultyDisk, topic: str) -> list[StoredSector]:
    """Return all sectors of a topic that contain only batches whose damage is provable."""
    found: dict[tuple[str, int], StoredSector] = {}
    ends: dict[str, int] = {}
    for path, partition, position, header in provable_batches(disk, topic):
        ends[path] = position + header.size
        for start in range(position // SECTOR_BYTES * SECTOR_BYTES, ends[path], SECTOR_BYTES):
            known = found.get((path, start))
            if known is not None:
                found[path, start] = known._replace(next_offset=header.next_offset)
            elif start >= position:
                found[path, start] = StoredSector(
                    path, partition, start, header.base_offset, header.next_offset
                )
    return [
        sector for sector in found.values() if sector.position + SECTOR_BYTES <= ends[sector.path]
    ]


def checkpoints(disk: FaultyDisk) -> list[str]:
    """Return the paths of the checkpoints of all partitions."""
    return [
        path
        for path in sorted(contents(disk))
        if path.startswith("topics/") and path.endswith("/checkpoint") and disk.durable_bytes(path)
    ]


def first_base_offset(disk: FaultyDisk, directory: str) -> int:
    """Return the offset below which the disk has no segment of a log, and cannot regain one."""
    names = disk.names_seen_or_durable(directory)
    return min((int(name[:-4]) for name in names if name.endswith(".log")), default=0)


def visible_log_ends(disk: FaultyDisk, topic: str) -> dict[int, int]:
    """Return the log end offsets of a topic's partitions, on the disk or in its cache.

    If damage hides the end, the result is an offset that no log ever reaches.
    """
    ends: dict[int, int] = {}
    for path in disk.paths():
        if not path.startswith(f"topics/{topic}.") or not path.endswith(".log"):
            continue
        partition = int(path.split("/")[2])
        data = disk.visible_bytes(path)
        batches = intact_batches(data, path, partition)
        end = end_position = 0
        if batches:
            end = batches[-1].header.next_offset
            end_position = batches[-1].position + batches[-1].header.size
        if max(end_position, SEGMENT_HEADER_SIZE) < len(data):
            end = _NO_END
        ends[partition] = max(end, ends.get(partition, 0))
    return ends


def rebuilt_bytes(disk: FaultyDisk, topic: str) -> list[tuple[str, int, int]]:
    """Return path, start and end (exclusive) of all bytes that a log of a topic can rebuild.

    These are headers and footers of segments, and indexes. They contain no records.
    """
    found: list[tuple[str, int, int]] = []
    for path in sorted(contents(disk)):
        if not path.startswith(f"topics/{topic}."):
            continue
        if path.endswith(INDEX_SUFFIX) and (data := disk.durable_bytes(path)):
            found.append((path, 0, len(data)))
        elif path.endswith(LOG_SUFFIX) and len(data := disk.durable_bytes(path)) >= _FRAME_BYTES:
            found.append((path, 0, SEGMENT_HEADER_SIZE))
            footer_at = len(data) - SEGMENT_FOOTER_SIZE
            if parse_segment_footer(data[footer_at:]) is not None:
                found.append((path, footer_at, len(data)))
    return found


def intact_batches(data: bytes, path: str, partition: int) -> list[StoredBatch]:
    """Return the batches at the start of a segment, up to the first that is not intact."""
    found: list[StoredBatch] = []
    position = SEGMENT_HEADER_SIZE
    while True:
        header = parse_header(data, position)
        if header is None or position + header.size > len(data):
            return found
        if not has_valid_payload(header, data[position : position + header.size]):
            return found
        found.append(StoredBatch(path, partition, position, header))
        position += header.size
