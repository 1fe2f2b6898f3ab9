"""Tests of the map of keys: it says what a dictionary would, in memory that never grows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.wire.memory import at_most_allocated
from tidelog.logstore.compaction.offset_map import SLOT_BYTES, OffsetMap

SMALL = 64 * SLOT_BYTES


@given(st.lists(st.binary(max_size=1), max_size=100))
def test_it_says_what_a_dictionary_would(keys: list[bytes]) -> None:
    found, expected = OffsetMap(memory_bytes=SMALL), dict[bytes, int]()
    for offset, key in enumerate(keys):
        if key in expected or found.room:
            found.put(key, offset)
            expected[key] = offset

    assert len(found) == len(expected)
    assert all(found.newest(key) == expected.get(key) for key in keys)
    assert found.newest(b"never put") is None


def test_offset_0_is_an_offset() -> None:
    keys = OffsetMap(memory_bytes=SMALL)

    keys.put(b"", 0)

    assert (keys.newest(b""), len(keys)) == (0, 1)


def test_every_key_is_found_when_no_more_fit() -> None:
    keys = OffsetMap(memory_bytes=SLOT_BYTES * 1000)
    for number in range(keys.capacity):
        keys.put(b"%d" % number, number)

    assert (len(keys), keys.room) == (750, 0)
    assert [keys.newest(b"%d" % number) for number in range(750)] == list(range(750))
    keys.put(b"7", 5000)
    assert keys.newest(b"7") == 5000


def test_whoever_puts_without_room_is_stopped() -> None:
    keys = OffsetMap(memory_bytes=SMALL)
    for number in range(keys.capacity):
        keys.put(b"%d" % number, number)

    with pytest.raises(AssertionError, match="room"):
        keys.put(b"one more", 100)


def test_it_takes_the_memory_that_it_was_given_and_no_more() -> None:
    given_bytes = 1 << 20

    with at_most_allocated(given_bytes + 4096):
        keys = OffsetMap(memory_bytes=given_bytes)
        for number in range(1000):
            keys.put(b"%d" % number, number)
