"""Tests of rows: messages as named fields, and the contents of a batch."""

import msgspec
import pytest

from tests.logstore.logs import stored
from tidelog.broker.inspection.contents import content_lines
from tidelog.broker.inspection.file_kinds import Content
from tidelog.broker.inspection.rows import OffsetFilter, Row, bad, named
from tidelog.coordinator.raft.messages import EntryKind
from tidelog.wire.batch.record_batch import parse_header
from tidelog.wire.errors import WireFormatError
from tidelog.wire.messages.queue_journal import (
    BackgroundWork,
    Deleted,
    JournalFrame,
    LogStartAdvanced,
    encode,
)


def test_a_message_becomes_named_fields_recursively() -> None:
    entries = [Deleted([(2, 3)]), LogStartAdvanced(7)]

    assert named(entries) == [
        {"record": "Deleted", "runs": [[2, 3]]},
        {"record": "LogStartAdvanced", "offset": 7},
    ]


def test_ids_are_shown_as_hexadecimal_and_enums_by_name() -> None:
    assert named({b"\x01\xff": EntryKind.COMMAND}) == {"01ff": "COMMAND"}
    assert named(frozenset({"b", "a"})) == ["a", "b"]


def test_an_offset_filter_matches_overlapping_ranges() -> None:
    assert OffsetFilter(3, 6).touches(0, 4)
    assert not OffsetFilter(3, 6).touches(0, 3)
    assert not OffsetFilter(3, 6).touches(6, 7)


def test_a_bad_row_has_place_and_reason() -> None:
    assert bad("f", "torn", position=7) == {
        "file": "f", "type": "bad", "position": 7, "reason": "torn"
    }  # fmt: skip


def shown(values: list[bytes], content: Content) -> list[Row]:
    batch = stored(values, base_offset=5, leader_epoch=2)
    header = parse_header(batch)
    assert header is not None
    return list(content_lines("f", header, batch, content=content, wanted=OffsetFilter()))


def test_an_entry_of_a_journal_is_shown_by_name() -> None:
    frame = JournalFrame(9, [Deleted([(1, 2)])], background_work=BackgroundWork.MOVES)

    (line,) = shown([encode(frame)], Content.JOURNAL)

    assert (line["type"], line["offset"], line["now_ms"]) == ("journal_entry", 5, 9)
    assert (line["kind"], line["background_work"]) == ("Deleted", "MOVES")
    assert line["entry"] == {"record": "Deleted", "runs": [[1, 2]]}


def test_an_entry_of_the_metadata_has_its_index_and_term() -> None:
    (line,) = shown([b"\x01"], Content.ENTRIES)

    assert (line["index"], line["term"], line["kind"]) == (6, 2, "TERM_START")


@pytest.mark.parametrize(
    ("content", "value"),
    [
        (Content.JOURNAL, msgspec.msgpack.encode((9, [(99, 1)]))),
        (Content.ENTRIES, b"\x00" + msgspec.msgpack.encode([("of-the-future", 1)])),
        (Content.ENTRIES, b"\x07"),
    ],
)
def test_contents_of_a_newer_version_are_not_guessed(content: Content, value: bytes) -> None:
    with pytest.raises(WireFormatError):
        shown([value], content)
