"""Declared messages by name."""

from tidelog.broker.inspection.rows import OffsetRange, bad, named
from tidelog.coordinator.raft.messages import EntryKind
from tidelog.wire.messages.queue_journal import Deleted, LogStartAdvanced


def test_a_message_is_its_fields_by_name_all_the_way_down() -> None:
    entries = [Deleted([(2, 3)]), LogStartAdvanced(7)]

    assert named(entries) == [
        {"record": "Deleted", "runs": [[2, 3]]},
        {"record": "LogStartAdvanced", "offset": 7},
    ]


def test_bytes_that_name_something_are_hexadecimal_and_numbers_of_a_kind_are_its_name() -> None:
    assert named({b"\x01\xff": EntryKind.COMMAND}) == {"01ff": "COMMAND"}
    assert named(frozenset({"b", "a"})) == ["a", "b"]


def test_a_range_touches_what_overlaps_it() -> None:
    assert OffsetRange(3, 6).touches(0, 4)
    assert not OffsetRange(3, 6).touches(0, 3)
    assert not OffsetRange(3, 6).touches(6, 7)


def test_what_is_bad_says_where_and_why() -> None:
    assert bad("f", "torn", position=7) == {
        "file": "f", "type": "bad", "position": 7, "reason": "torn"
    }  # fmt: skip
