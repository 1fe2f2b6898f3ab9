"""What stands in the log about groups can be read for ever."""

from typing import get_args

import msgspec

from tests.golden.group_records import FILE, RECORDS, line
from tidelog.coordinator.groups.records import GroupRecord

LINES = FILE.read_text(encoding="utf-8").splitlines()


def test_what_is_written_now_is_what_was_written_then() -> None:
    assert [line(record) for record in RECORDS] == LINES


def test_what_was_written_then_is_read_as_it_was_meant() -> None:
    stored = [bytes.fromhex(line.split(" ")[0]) for line in LINES]

    read = [msgspec.msgpack.decode(data, type=GroupRecord) for data in stored]

    assert read == RECORDS


def test_every_record_is_in_the_golden_file() -> None:
    assert {type(record) for record in RECORDS} == set(get_args(GroupRecord))
