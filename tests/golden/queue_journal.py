"""The journal of a queue, as a golden file: `python -m tests.golden.queue_journal`.

One frame for each kind of entry, as the value of a record, and what an independent reader makes
of it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgpack

from tests.golden.dump import lines, text
from tidelog.wire.messages import queue_journal as entries
from tidelog.wire.messages.queue_journal import Attempt, Frame

FILE = Path(__file__).parent / "queue_journal_v1.hex"
NOW_MS = 1_700_000_000_000
DEAD = (bytes(range(0xA0, 0xB0)), 3)

ENTRIES: list[entries.AnyEntry] = [
    entries.Seeked(1000),
    entries.Received(1, [(1000, 10), (1020, 1)], NOW_MS + 30_000, "worker-1", b"attempt"),
    entries.Delayed([(1030, 2, NOW_MS + 60_000)]),
    entries.Deleted([(1000, 3)]),
    entries.Extended(1, [(1003, 1)], NOW_MS + 90_000),
    entries.Released([(1004, 2)], NOW_MS + 5_000, "no route to host"),
    entries.Returned([(1006, 1)], NOW_MS),
    entries.DeadLettered([(1007, 2)], DEAD, "not a number"),
    entries.Moved(DEAD, 0, 0, 1),
    entries.MoveFailed(DEAD, 0, 1, 1, "the topic is gone"),
    entries.TargetChanged(entries.NO_TARGET, DEAD),
    entries.LogStartAdvanced(1003),
    entries.Expired([(1004, 1)]),
    entries.Purged(1040),
    entries.RedriveStarted(1040, 12, None, 50, "orders"),
    entries.Redriven([(1009, 1)], DEAD),
    entries.RedriveProgressed(1010, 3),
    entries.RedriveEnded(2, "cancelled"),
    entries.SnapshotStarted(
        1040,
        2,
        1,
        [entries.SnapshotMoves(DEAD, 1, 0, [[(1011, 2)]], [1])],
        entries.SnapshotRedrive(0, 1040, 1010, 12, 1, NOW_MS - 1000, None, 50, "orders"),
        [Attempt(b"attempt", 1, ((1000, 10), (1020, 1)), NOW_MS - 2000, NOW_MS + 30_000)],
        900,
    ),
    entries.SnapshotRuns(
        [("worker-1", "")], [entries.SnapshotRun(1020, 1, 1, 30_000, 1, 0, 0, 1, 0)]
    ),
    entries.SnapshotEnded(1),
    entries.ReceiveRepeated(b"attempt", NOW_MS + 35_000),
    entries.SnapshotMoreMoves([entries.SnapshotMoves(DEAD, 1, 0, [[(1013, 1)]], [0])]),
    entries.SnapshotMoreAttempts(
        [Attempt(b"another", 2, ((1010, 1),), NOW_MS - 1000, NOW_MS + 31_000)]
    ),
]
FRAMES = [
    *(Frame(NOW_MS, [entry]) for entry in ENTRIES),
    Frame(NOW_MS, [entries.Deleted([(1000, 3)])], entries.BackgroundWork.MOVES),
    Frame(NOW_MS, [entries.Deleted([(1000, 3)])], entries.BackgroundWork.NOTHING, 70_000),
]
EXAMPLE = entries.encode(FRAMES[1])
"""Of the page of the format: a receive."""


def line(frame: Frame) -> str:
    """Return the line of one frame."""
    data = entries.encode(frame)
    return f"{data.hex()} {msgpack.unpackb(data)!r}"


def explained() -> Iterator[str]:
    """Yield the lines that explain the frame of the worked example, field by field."""
    now, fields = _taken_apart(EXAMPLE)
    yield from lines(0, b"\x92", "a frame: an array of 2")
    yield from lines(1, msgpack.packb(now), f"now_ms = {now}")
    at = 1 + len(msgpack.packb(now))
    yield from lines(at, b"\x91", "entries: an array of 1")
    yield from lines(at + 1, bytes([0x90 + len(fields)]), f"an entry: an array of {len(fields)}")
    at += 2
    names = ("kind", "lease_id", "runs", "visible_at_ms", "holder", "attempt_id")
    for name, field in zip(names, fields, strict=True):
        packed = msgpack.packb(field)
        yield from lines(at, packed, f"{name} = {field}")
        at += len(packed)
    assert at == len(EXAMPLE)


def _taken_apart(frame: bytes) -> tuple[int, list[object]]:
    now, (fields,) = cast("tuple[int, list[list[object]]]", msgpack.unpackb(frame))
    return now, fields


def main() -> None:
    """Write the golden files."""
    FILE.write_text("".join(f"{line(frame)}\n" for frame in FRAMES), encoding="utf-8")
    FILE.with_suffix(".bin").write_bytes(EXAMPLE)
    FILE.with_suffix(".txt").write_bytes(text(explained()))


if __name__ == "__main__":
    main()
