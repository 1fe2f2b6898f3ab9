"""Records that were put together."""

from spark_connector.record_columns import GivenRecords


def test_there_are_as_many_records_as_offsets() -> None:
    records = GivenRecords("a", 0, False, [4, 6], [1, 2], [None, b"k"], [b"", None], [(), ()])

    assert len(records) == 2
