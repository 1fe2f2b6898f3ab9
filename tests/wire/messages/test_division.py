"""Division of long lists into several requests."""

import pytest

from tidelog.wire.messages.division import divided, divided_names


@pytest.mark.parametrize(
    ("count", "lengths"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3]), (7, [3, 3, 1])]
)
def test_all_items_are_in_some_request_in_order(count: int, lengths: list[int]) -> None:
    parts = list(divided(range(count), most=3))

    assert [len(part) for part in parts] == lengths
    assert [item for part in parts for item in part] == list(range(count))


def test_a_request_has_as_many_items_as_a_broker_accepts() -> None:
    assert [len(part) for part in divided(range(2_500))] == [1_000, 1_000, 500]


def test_a_request_has_each_name_once_and_none_for_all() -> None:
    assert list(divided_names(["b", "a", "b"])) == [["b", "a"]]
    assert list(divided_names([])) == [[]]
    assert list(divided_names(None)) == [None]
