"""Generator of the golden disk calls for durability: `python -m tests.golden.disk_calls`.

Check `git diff` afterwards: a missing or moved sync may break a guarantee.
`tests/logstore/test_crashes.py` decides whether it does.
"""

from collections.abc import Callable, Iterator
from functools import partial

from tests.golden.regenerate import FOLDER
from tests.logstore.logs import DIRECTORY, NOW_MS, Opened, new_log, reopen
from tests.simulation.machine.faulty_disk import FaultyDisk
from tidelog.logstore.config import LogConfig

FILE = FOLDER / "disk_calls.scenarios"


def disk_calls() -> str:
    """Return the scenarios with the disk calls of each, without reads."""
    return "".join(f"{line}\n" for line in _stories())


def _stories() -> Iterator[str]:
    disk = FaultyDisk()
    yield from _told(disk, "a log is made", partial(reopen, disk))
    opened = new_log()
    opened.append(b"0")
    opened.flush()
    told = partial(_told, opened.disk)
    yield from told("append, flush", partial(_append_and_flush, opened))
    yield from told("roll, append, flush", partial(_roll_append_and_flush, opened))
    opened.append(b"3")
    yield from told("checkpoint", partial(opened.flush, checkpoint=True))
    yield from told("retention, flush", partial(_retain_and_flush, opened))
    _roll_append_and_flush(opened)
    opened.append(b"5")
    yield from told("truncate over a segment", partial(opened.log.truncate, 3))
    disk = opened.disk.kill()
    yield from _told(disk, "start after a clean shutdown", partial(reopen, disk))
    opened = reopen(disk.kill())
    opened.append(b"3")
    disk = opened.disk.kill()
    file = disk.open(opened.path(2))
    file.truncate(file.size() - 1)
    yield from _told(disk, "start after a crash in the middle of an append", partial(reopen, disk))


def _told(disk: FaultyDisk, title: str, tell: Callable[[], object]) -> Iterator[str]:
    yield f"# {title}"
    before = len(disk.changes)
    tell()
    for operation, path, *details in disk.changes[before:]:
        names = [str(item).removeprefix(f"{DIRECTORY}/") for item in (path, *details)]
        yield " ".join([str(operation), *names]).rstrip()
    yield ""


def _append_and_flush(opened: Opened) -> None:
    opened.append(b"1")
    opened.flush()


def _roll_append_and_flush(opened: Opened) -> None:
    opened.log.roll_if_old(now_ms=NOW_MS * 2)
    opened.append(b"2")
    opened.flush()


def _retain_and_flush(opened: Opened) -> None:
    opened.log.config = LogConfig(retention_bytes=0)
    opened.log.apply_retention(high_watermark=2, now_ms=NOW_MS).run()
    opened.flush()


if __name__ == "__main__":
    FILE.write_text(disk_calls(), encoding="utf-8")
