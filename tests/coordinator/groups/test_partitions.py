"""Sets of partitions, packed by topic."""

from hypothesis import given
from hypothesis import strategies as st

from coordinator.groups.partitions import pack, unpack

partitions = st.tuples(st.sampled_from([b"a" * 16, b"b" * 16]), st.integers(0, 9))


@given(st.sets(partitions))
def test_what_is_packed_is_unpacked_in_order(found: set[tuple[bytes, int]]) -> None:
    assert unpack(pack(found)) == sorted(found)


@given(st.sets(partitions))
def test_each_topic_is_packed_once(found: set[tuple[bytes, int]]) -> None:
    topic_ids = [topic.topic_id for topic in pack(found)]

    assert topic_ids == sorted({topic_id for topic_id, _ in found})
