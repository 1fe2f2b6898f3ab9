"""The journal of a queue, as a golden file: `python -m tests.golden.queue_journal`.

One frame for each kind of entry, as the value of a record, and the result of an independent
decoder.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import cast

import msgpack

from tests.golden.dump import lines, text
from tidelog.wire.messages import queue_journal
from tidelog.wire.messages.queue_journal import Attempt, JournalFrame

FILE = Path(__file__).parent / "queue_journal_v1.hex"
NOW_MS = 1_700_000_000_000
DEAD = (bytes(range(0xA0, 0xB0)), 3)

ENTRIES: list[queue_journal.AnyEntry] = [
    queue_journal.Seeked(1000),
    queue_journal.Received(1, [(1000, 10), (1020, 1)], NOW_MS + 30_000, "worker-1", b"attempt"),
    queue_journal.Delayed([(1030, 2, NOW_MS + 60_000)]),
    queue_journal.Deleted([(1000, 3)]),
    queue_journal.Extended(1, [(1003, 1)], NOW_MS + 90_000),
    queue_journal.Released([(1004, 2)], NOW_MS + 5_000, "no route to host"),
    queue_journal.Returned([(1006, 1)], NOW_MS),
    queue_journal.DeadLettered([(1007, 2)], DEAD, "not a number"),
    queue_journal.Moved(DEAD, 0, 0, 1),
    queue_journal.MoveFailed(DEAD, 0, 1, 1, "the topic is gone"),
    queue_journal.TargetChanged(queue_journal.NO_TARGET, DEAD),
    queue_journal.LogStartAdvanced(1003),
    queue_journal.Expired([(1004, 1)]),
    queue_journal.Purged(1040),
    queue_journal.RedriveStarted(1040, 12, None, 50, "orders", b"task", "for the auditors", True),
    queue_journal.Redriven([(1009, 1)], DEAD),
    queue_journal.RedriveProgressed(1010, 3, "no topic"),
    queue_journal.RedriveEnded(2, "cancelled"),
    queue_journal.SnapshotStarted(
        1040,
        2,
        1,
        [queue_journal.SnapshotMoves(DEAD, 1, 0, [[(1011, 2)]], [1])],
        queue_journal.SnapshotRedrive(0, 1040, 1010, 12, 1, NOW_MS - 1000, None, 50, "orders"),
        [Attempt(b"attempt", 1, ((1000, 10), (1020, 1)), NOW_MS - 2000, NOW_MS + 30_000)],
        900,
        [queue_journal.SnapshotRedrive(1, 900, 900, 3, 3, NOW_MS - 90_000, redrive_id=b"first")],
    ),
    queue_journal.SnapshotRuns(
        [("worker-1", "")], [queue_journal.SnapshotRun(1020, 1, 1, 30_000, 1, 0, 0, 1, 0)]
    ),
    queue_journal.SnapshotEnded(1),
    queue_journal.ReceiveRepeated(b"attempt", NOW_MS + 35_000),
    queue_journal.SnapshotMoreMoves([queue_journal.SnapshotMoves(DEAD, 1, 0, [[(1013, 1)]], [0])]),
    queue_journal.SnapshotMoreAttempts(
        [Attempt(b"another", 2, ((1010, 1),), NOW_MS - 1000, NOW_MS + 31_000)]
    ),
]
FRAMES = [
    *(JournalFrame(NOW_MS, [entry]) for entry in ENTRIES),
    JournalFrame(NOW_MS, [queue_journal.Deleted([(1000, 3)])], queue_journal.BackgroundWork.MOVES),
    JournalFrame(
        NOW_MS, [queue_journal.Deleted([(1000, 3)])], queue_journal.BackgroundWork.NOTHING, 70_000
    ),
]
EXAMPLE = queue_journal.encode(FRAMES[1])
"""The worked example of the format page: a receive."""


def line(frame: JournalFrame) -> str:
    """Return the line of one frame."""
    data = queue_journal.encode(frame)
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
