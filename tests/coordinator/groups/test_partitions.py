"""Sets of partitions, packed by topic."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.partitions import pack, require_moderate, unpack
from tidelog.wire.errors import InvalidRequestError
from tidelog.wire.messages.field_types import LIST_LENGTH_MAX
from tidelog.wire.messages.groups import TopicPartitions

partitions = st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 9))


@given(st.sets(partitions))
def test_what_is_packed_is_unpacked_in_order(found: set[tuple[bytes, int]]) -> None:
    assert unpack(pack(found)) == sorted(found)


@given(st.sets(partitions))
def test_each_topic_is_packed_once(found: set[tuple[bytes, int]]) -> None:
    topic_ids = [topic.topic_id for topic in pack(found)]

    assert topic_ids == sorted({topic_id for topic_id, _ in found})


def test_a_request_names_no_more_partitions_than_may_be_worked_through_in_one_go() -> None:
    half = TopicPartitions(b"t", list(range(LIST_LENGTH_MAX // 2)))

    require_moderate([half, half])
    with pytest.raises(InvalidRequestError, match="at most 100,000 partitions in all, not 150,000"):
        require_moderate([half] * 3)
