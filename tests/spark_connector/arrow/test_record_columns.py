"""Records that were put together."""

from tidelog.spark_connector.arrow.record_columns import GivenRecords, of_origin, only
from tidelog.wire.batch.record_batch import Headers


def test_there_are_as_many_records_as_offsets() -> None:
    records = GivenRecords("a", 0, False, [4, 6], 1, [0, 1], [None, b"k"], [b"", None], [(), ()])

    assert len(records) == 2


def test_some_of_the_records_are_kept_with_other_values() -> None:
    records = GivenRecords(
        "a", 0, True, [4, 6, 7], 1, [0, 1, 2], [None, b"k", None], [b"", None, b"x"], [(), (), ()]
    )

    kept = only(records, [0, 2], [b"A", b"B", b"C"])

    assert kept == GivenRecords(
        "a", 0, True, [4, 7], 1, [0, 2], [None, None], [b"A", b"C"], [(), ()]
    )


def test_dead_letters_of_one_queue_are_told_from_those_of_others() -> None:
    mine: Headers = (("tidelog.origin.queue", b"pay"), ("tidelog.reason", b"?"))
    other: Headers = (("tidelog.origin.queue", b"ship"),)

    def records(*headers: Headers) -> GivenRecords:
        count = len(headers)
        return GivenRecords(
            "dead", 0, True, range(count), 0, None, [None] * count, [b""] * count, headers
        )

    assert of_origin(records(mine, mine), "pay") == records(mine, mine)
    found = of_origin(records(mine, other, (), mine), "pay")
    assert found is not None
    assert list(found.offsets) == [0, 3]
    assert of_origin(records(other, ()), "pay") is None
