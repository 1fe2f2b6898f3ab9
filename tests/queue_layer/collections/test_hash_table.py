"""Hash table: a map from hashes to numbers in little memory."""

from collections.abc import Callable
from hashlib import blake2b
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.queue_layer.collections.hash_table import HashTable


def key_of(number: int) -> bytes:
    return blake2b(number.to_bytes(8, "little"), digest_size=16).digest()


def neighbour(number: int) -> bytes:
    """Return a key whose home is one of three places of one segment: all of them collide."""
    return (number % 3 + number * 512).to_bytes(8, "little") + bytes(8)


def test_an_empty_hash_table_uses_no_memory() -> None:
    table = HashTable()

    assert len(table) == 0
    assert table.get(key_of(1)) is None
    with pytest.raises(KeyError):
        table.remove(key_of(1))


def test_a_key_has_the_last_number_it_was_given() -> None:
    table = HashTable()
    table.put(key_of(1), 0)
    table.put(key_of(1), 2**63 - 1)

    assert table.get(key_of(1)) == 2**63 - 1
    assert len(table) == 1


def test_removing_a_missing_key_raises_and_changes_nothing() -> None:
    table = HashTable()
    table.put(key_of(1), 1)

    with pytest.raises(KeyError):
        table.remove(key_of(2))
    assert len(table) == 1


def test_keys_that_differ_in_one_half_are_different() -> None:
    table = HashTable()
    table.put(bytes(8) + b"\x01" * 8, 1)
    table.put(bytes(16), 2)
    table.put(b"\x01" * 8 + bytes(8), 3)

    assert table.get(bytes(8) + b"\x01" * 8) == 1
    assert table.get(bytes(16)) == 2
    assert table.get(b"\x01" * 8 + bytes(8)) == 3


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 40)), max_size=200),
    st.sampled_from([key_of, neighbour]),
)
def test_the_hash_table_matches_a_dict_with_colliding_keys(
    steps: list[tuple[bool, int]], make_key: Callable[[int], bytes]
) -> None:
    table, model = HashTable(), dict[bytes, int]()
    for is_put, number in steps:
        key = make_key(number)
        if is_put:
            table.put(key, number)
            model[key] = number
        elif model.pop(key, None) is not None:
            table.remove(key)
    assert len(table) == len(model)
    for number in range(41):
        assert table.get(make_key(number)) == model.get(make_key(number))


def test_the_hash_table_matches_a_dict_while_it_grows_and_shrinks() -> None:
    random, table, model = Random(1), HashTable(), dict[bytes, int]()
    for step in range(30_000):
        number = random.randrange(6_000)
        if random.random() < (0.7 if step < 15_000 else 0.3):
            table.put(key_of(number), step)
            model[key_of(number)] = step
        elif model.pop(key_of(number), None) is not None:
            table.remove(key_of(number))

    assert len(table) == len(model)
    assert all(table.get(key_of(number)) == model.get(key_of(number)) for number in range(6_000))


def test_an_emptied_hash_table_frees_its_memory() -> None:
    table = HashTable()
    for number in range(5_000):
        table.put(key_of(number), number)
    for number in range(5_000):
        table.remove(key_of(number))

    assert table.size_bytes == 0
    table.put(key_of(1), 1)
    assert table.get(key_of(1)) == 1


def test_an_entry_costs_at_most_sixty_bytes() -> None:
    table = HashTable()
    for number in range(60_000):
        table.put(key_of(number), number)

    assert table.size_bytes / len(table) < 60
