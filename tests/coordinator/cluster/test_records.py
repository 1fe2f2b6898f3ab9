"""What stands in the metadata log can be read for ever."""

from typing import get_args

import msgspec
import pytest

from coordinator.cluster.records import (
    BrokerUnregistered,
    Partition,
    Record,
    decode_records,
    encode_records,
)
from tests.golden.metadata_records import FILE, LEADERLESS, MOVING, RECORDS, line

LINES = FILE.read_text(encoding="utf-8").splitlines()


def test_what_is_written_now_is_what_was_written_then() -> None:
    assert [line(record) for record in RECORDS] == LINES


def test_what_was_written_then_is_read_as_it_was_meant() -> None:
    stored = [bytes.fromhex(line.split(" ")[0]) for line in LINES]

    read = [msgspec.msgpack.decode(data, type=Record) for data in stored]

    assert read == RECORDS


def test_every_record_is_in_the_golden_file() -> None:
    assert {type(record) for record in RECORDS} == set(get_args(Record))


def test_the_records_of_one_entry_are_one_array() -> None:
    data = encode_records(RECORDS)

    assert decode_records(data) == RECORDS
    assert decode_records(memoryview(data)) == RECORDS
    assert decode_records(encode_records([])) == []


def test_an_entry_that_is_cut_damaged_or_newer_is_refused() -> None:
    data = encode_records(RECORDS)

    for end in range(len(data)):
        with pytest.raises(msgspec.MsgspecError):
            decode_records(data[:end])
    with pytest.raises(msgspec.MsgspecError):
        decode_records(data + b"\x00")
    with pytest.raises(msgspec.MsgspecError, match="Invalid value"):
        decode_records(msgspec.msgpack.encode([["broker-praised", 1]]))


def test_a_field_that_a_newer_version_appends_does_no_harm() -> None:
    newer = msgspec.msgpack.encode([["broker-unregistered", 7, "it was time"]])

    (record,) = decode_records(newer)

    assert record == BrokerUnregistered(7)


@pytest.mark.parametrize(
    ("partition", "replication_factor", "is_reassigning"),
    [(MOVING, 3, True), (LEADERLESS, 2, False), (Partition((1,), (1,)), 1, False)],
)
def test_replicas_that_are_only_being_added_do_not_count(
    partition: Partition, replication_factor: int, *, is_reassigning: bool
) -> None:
    assert partition.replication_factor == replication_factor
    assert partition.is_reassigning == is_reassigning
