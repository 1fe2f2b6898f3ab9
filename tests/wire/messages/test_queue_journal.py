"""Journal frames round-trip, and other bytes are refused."""

import re
from typing import Final, get_args

import msgpack
import msgspec
import pytest

from tests.golden.queue_journal import EXAMPLE, FILE, FRAMES, explained, line
from tests.paths import ROOT
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queue_journal import (
    AnyEntry,
    BackgroundWork,
    JournalFrame,
    Received,
    RedriveProgressed,
    RedriveStarted,
    Seeked,
    SnapshotStarted,
    decode,
    encode,
)

PAGE: Final = ROOT.joinpath("docs", "formats", "queue_journal.md").read_text("utf-8")


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame.entries[0]).__name__)
def test_a_frame_is_read_as_it_was_written(frame: JournalFrame) -> None:
    assert decode(encode(frame)) == frame
    assert decode(memoryview(encode(frame))) == frame


@pytest.mark.parametrize("frame", FRAMES, ids=lambda frame: type(frame.entries[0]).__name__)
def test_a_frame_that_was_cut_is_refused(frame: JournalFrame) -> None:
    data = encode(frame)

    for length in range(len(data)):
        with pytest.raises(WireFormatError):
            decode(data[:length])
    with pytest.raises(WireFormatError):
        decode(data + b"\xc0")


def test_journal_frames_keep_their_encoding_and_old_ones_are_read() -> None:
    kept = FILE.read_text(encoding="utf-8").splitlines()

    assert kept == [line(frame) for frame in FRAMES]
    assert [decode(bytes.fromhex(row.split()[0])) for row in kept] == FRAMES


def test_there_is_a_golden_frame_for_every_entry() -> None:
    assert {type(frame.entries[0]) for frame in FRAMES} == set(get_args(AnyEntry))


def test_every_entry_has_a_number_of_its_own() -> None:
    numbers = [entry.__struct_config__.tag for entry in get_args(AnyEntry)]

    assert numbers == list(range(1, len(numbers) + 1))


def test_an_entry_of_a_newer_version_is_refused() -> None:
    with pytest.raises(WireFormatError, match="no frame of a queue journal"):
        decode(msgpack.packb([1, [[250, 1]]]))


def test_a_snapshot_of_an_older_version_knows_of_no_purge() -> None:
    older: list[object] = [19, 1040, 2, 1, [], None, []]
    (began,) = decode(msgpack.packb([1, [older]])).entries

    assert began == SnapshotStarted(1040, 2, 1, [], purged_below=0)


def test_fields_of_a_newer_version_are_ignored() -> None:
    data = msgpack.packb([1, [[1, 5, 0, "more"]], 2, None, "more"])
    assert decode(data) == JournalFrame(1, [Seeked(5)], BackgroundWork.MOVES)


def test_a_journal_frame_may_have_background_work() -> None:
    frame = JournalFrame(1, [Seeked(5)], BackgroundWork.NOTHING)
    assert decode(encode(frame)) == frame
    assert encode(JournalFrame(1, [Seeked(5)])) == msgpack.packb([1, [[1, 5, 0]]])


def test_a_journal_frame_may_have_a_snapshot_offset() -> None:
    frame = JournalFrame(1, [Seeked(5)], BackgroundWork.NOTHING, 70)
    assert decode(encode(frame)) == frame
    assert encode(JournalFrame(1, [Seeked(5)], None, 70)) == msgpack.packb(
        [1, [[1, 5, 0]], None, 70]
    )
    assert encode(JournalFrame(1, [Seeked(5)], BackgroundWork.KEPT)) == msgpack.packb(
        [1, [[1, 5, 0]], 1]
    )


def test_fields_that_an_older_version_did_not_write_have_their_defaults() -> None:
    assert decode(msgpack.packb([1, [[2, 9, [[3, 4]], 5]]])) == JournalFrame(
        1, [Received(9, [(3, 4)], 5, "", None)]
    )
    assert decode(msgpack.packb([1, [[17, 1010, 3]]])) == JournalFrame(
        1, [RedriveProgressed(1010, 3, "")]
    )
    assert decode(msgpack.packb([1, [[15, 9, 3, None, None, None]]])) == JournalFrame(
        1, [RedriveStarted(9, 3, redrive_id=b"", note="", only_sources=False)]
    )


@pytest.mark.parametrize("value", [b"", b"\xc0", b"\x92\xff\x90", b"\x92\x01\x91\x92\x01\xfb"])
def test_bytes_that_are_no_journal_are_refused(value: bytes) -> None:
    with pytest.raises(WireFormatError):
        decode(value)


def test_a_receive_of_ten_messages_costs_few_bytes() -> None:
    frame = JournalFrame(
        1_700_000_000_000, [Received((3 << 40) + 70_000, [(5_000_000, 10)], 1_700_000_030_000)]
    )

    assert len(encode(frame)) <= 41
    assert msgspec.msgpack.decode(encode(frame))[1][0][0] == 2


def test_the_page_of_the_format_lists_every_entry_with_its_fields() -> None:
    rows = [row.split(" | ")[:3] for row in PAGE.splitlines() if re.match(r"\| \d+ \|", row)]

    shown = [
        (int(number.strip("| ")), name.strip("`"), re.findall(r"`(\w+)`", fields))
        for number, name, fields in rows
    ]

    assert shown == [
        (entry.__struct_config__.tag, entry.__name__, list(entry.__struct_fields__))
        for entry in get_args(AnyEntry)
    ]


def test_the_worked_example_on_the_page_is_the_golden_file() -> None:
    assert FILE.with_suffix(".txt").read_text(encoding="utf-8") in PAGE
    assert FILE.with_suffix(".bin").read_bytes() == EXAMPLE
    assert "".join(f"{row}\n" for row in explained()) in PAGE
