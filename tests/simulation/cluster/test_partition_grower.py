"""Tests of the checker for partition counts: each count in a reply is committed."""

import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.cluster.metadata_checkers import AnswersAreCommitted
from tidelog.coordinator.metadata.catalog import TopicCreated, TopicGrown

TOPIC = b"t" * 16


def checker() -> AnswersAreCommitted:
    """Return a checker with a topic that has grown from two partitions to five."""
    promise = AnswersAreCommitted()
    promise.now = lambda: 2.0
    promise.committed(1, [TopicCreated("t", TOPIC, 2, {}), TopicGrown(TOPIC, 5)])
    return promise


@pytest.mark.parametrize("count", [2, 5])
def test_a_committed_partition_count_is_accepted(count: int) -> None:
    checker().told_partitions("t", count)


@pytest.mark.parametrize(("name", "count"), [("t", 6), ("t", 3), ("u", 2)])
def test_an_uncommitted_partition_count_is_rejected(name: str, count: int) -> None:
    with pytest.raises(ViolationError, match="not committed"):
        checker().told_partitions(name, count)
