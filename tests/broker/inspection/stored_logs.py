"""A small log on the faulty disk, written by the log store, and its findings by inspection."""

import msgspec

from tests.logstore.logs import DIRECTORY, Opened, Producer, new_log, numbered
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.broker.inspection.dump import DumpOptions, dump
from tidelog.broker.inspection.findings import FileCheck
from tidelog.broker.inspection.rows import OffsetFilter, Row
from tidelog.broker.inspection.verify import verify
from tidelog.logstore.config import LogConfig

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=200, checkpoint_bytes=1 << 30)
"""Configuration with segments of four batches, every other one in the index."""
BATCH_COUNT = 10
ALL = OffsetFilter()


def stored_log() -> Opened:
    """Return a log of three segments, two epochs and one producer, all of it in a checkpoint."""
    opened = new_log(CONFIG)
    for number in range(BATCH_COUNT):
        opened.append(
            numbered(number, 20),
            producer=Producer(7, 0, number),
            leader_epoch=number // 5,
            timestamp_ms=1_700_000_000_000 + 1000 * (number % 4),
        )
    opened.flush(checkpoint=True)
    return opened


def paths_of(disk: FaultyDisk, directory: str = DIRECTORY) -> list[str]:
    return [f"{directory}/{name}" for name in disk.list_directory(directory)]


def all_findings(disk: FaultyDisk, *paths: str) -> dict[str, FileCheck]:
    """Return the findings of each file, by its name; of the whole log without paths."""
    found = verify(disk, paths or paths_of(disk), is_whole=not paths)
    return {each.path.rpartition("/")[2]: each for each in found}


def bad_files(disk: FaultyDisk) -> list[str]:
    return [name for name, check in all_findings(disk).items() if not check.is_ok]


def lines(
    disk: FaultyDisk, *paths: str, wanted: OffsetFilter = ALL, with_records: bool = False
) -> list[Row]:
    """Return the dump of files; of the whole log without paths."""
    options = DumpOptions(wanted=wanted, with_records=with_records)
    return list(dump(disk, paths or paths_of(disk), options))


def of_type(found: list[Row], kind: str) -> list[Row]:
    return [line for line in found if line["type"] == kind]


def fields_of(declared: type[msgspec.Struct]) -> set[str]:
    return set(declared.__struct_fields__)
