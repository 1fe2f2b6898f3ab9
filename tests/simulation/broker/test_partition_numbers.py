"""No two partitions of a run have one number."""

from tests.simulation.broker.partition_numbers import PartitionNumbers

ONE, OTHER = bytes(16), bytes(15) + b"\x01"


def test_partitions_of_topics_of_one_name_have_different_numbers() -> None:
    numbers = PartitionNumbers()
    directories = [
        f"topics/flights.{topic_id.hex()}/{n}" for topic_id in (ONE, OTHER) for n in (0, 1)
    ]

    assert [numbers.of_directory(path) for path in directories] == [0, 1, 1000, 1001]
    assert (numbers.first(ONE), numbers.first(OTHER)) == (0, 1000)


def test_where_no_log_is_there_is_no_number() -> None:
    assert PartitionNumbers().of_directory("metadata") is None
    assert PartitionNumbers().of_directory(f"topics/flights.{ONE.hex()}") is None
