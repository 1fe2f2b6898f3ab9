"""Tests of differences between replicas of a compacted partition."""

from tests.simulation.cluster.replica_difference import difference
from tests.wire.batches import decoded, reseal
from tidelog.wire.batch.record_batch import Columns, encode_batch, parse_header
from tidelog.wire.batch.sparse_batch import encode_sparse


def stripped(batch: bytes | bytearray) -> bytes:
    """Return a batch without the checksum of its header, as in a comparison of replicas."""
    return bytes(batch[:4] + bytes(4) + batch[8:])


def batch(keys: str = "abc") -> bytes:
    """Return a batch of three records."""
    columns = Columns(
        3,
        keys=[key.encode() for key in keys],
        values=[b"value %d" % offset for offset in range(3)],
    )
    return stripped(encode_batch(columns, first_timestamp_ms=1))


def without_the_second(whole: bytes) -> bytes:
    """Return the batch after compaction."""
    sealed = reseal(bytearray(whole))
    header = parse_header(sealed)
    assert header is not None
    return stripped(encode_sparse(header, decoded(sealed), [0, 2]))


WHOLE = batch()
SPARSE = without_the_second(WHOLE)


def test_replicas_without_compaction_have_the_same_bytes() -> None:
    assert difference({1: [WHOLE], 2: [WHOLE]}) is None
    assert difference({}) is None
    assert difference({1: [WHOLE], 2: [WHOLE], 3: [SPARSE]}) == (
        "nodes 1 and 3 have other batches, from batch 0 of 1 and 1 on"
    )


def test_a_record_that_compaction_may_remove_may_be_on_one_replica_only() -> None:
    asked: list[tuple[int, bytes]] = []

    def may_lack(offset: int, value: bytes) -> bool:
        asked.append((offset, value))
        return True

    assert difference({1: [WHOLE], 2: [SPARSE]}, may_lack) is None
    assert asked == [(1, b"value 1")]


def test_any_other_record_is_on_all_replicas() -> None:
    found = difference({1: [WHOLE], 2: [SPARSE]}, lambda _offset, _value: False)

    assert found == "node 2 has no b'value 1' at 1"


def test_a_record_has_the_same_value_on_all_replicas() -> None:
    found = difference({1: [WHOLE], 2: [batch("abd")]}, lambda _offset, _value: True)

    assert found is not None
    assert "at 2, not" in found
