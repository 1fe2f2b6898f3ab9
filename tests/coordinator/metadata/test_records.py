"""Encoding of the records in the metadata log."""

from typing import get_args

import msgspec
import pytest

from tests.golden.metadata_records import (
    FILE,
    IN_OLDER_FORM,
    LEADERLESS,
    MOVING,
    RECORDS,
    line,
)
from tidelog.coordinator.metadata.records import (
    PartitionRegistration,
    Record,
)

LINES = FILE.read_text(encoding="utf-8").splitlines()


def test_metadata_records_are_encoded_as_in_the_golden_file() -> None:
    assert len(LINES) == len(RECORDS)
    for number, record in enumerate(RECORDS):
        assert (line(record) == LINES[number]) == (number not in IN_OLDER_FORM)


def test_metadata_records_of_the_golden_file_are_decoded() -> None:
    stored = [bytes.fromhex(line.split(" ")[0]) for line in LINES]

    read = [msgspec.msgpack.decode(data, type=Record) for data in stored]

    assert read == RECORDS


def test_a_partition_record_without_later_fields_is_decoded() -> None:
    fields = msgspec.to_builtins(LEADERLESS)

    for count in (10, 11, 12, 13):
        stored = msgspec.msgpack.encode(fields[:count])
        assert msgspec.msgpack.decode(stored, type=PartitionRegistration) == LEADERLESS


def test_every_record_is_in_the_golden_file() -> None:
    assert {type(record) for record in RECORDS} == set(get_args(Record))


@pytest.mark.parametrize(
    ("partition", "replication_factor", "is_reassigning"),
    [(MOVING, 3, True), (LEADERLESS, 2, False), (PartitionRegistration((1,), (1,)), 1, False)],
)
def test_adding_replicas_do_not_count_for_the_replication_factor(
    partition: PartitionRegistration, replication_factor: int, *, is_reassigning: bool
) -> None:
    assert partition.replication_factor == replication_factor
    assert partition.is_reassigning == is_reassigning
