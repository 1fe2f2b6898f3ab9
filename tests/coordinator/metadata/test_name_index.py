"""Names in order, in pages."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.coordinator.metadata.clusters import Cluster
from tests.coordinator.metadata.queues import creation, make
from tidelog.coordinator.metadata.catalog import Catalog, DeleteTopic
from tidelog.coordinator.metadata.commands import DeleteQueue
from tidelog.coordinator.metadata.name_index import NameIndex

NAMES = st.text("ab-", min_size=1, max_size=3)


def all_of(index: NameIndex, *, prefix: str = "", limit: int = 2) -> list[str]:
    """Return the names of all pages."""
    found: list[str] = []
    has_more = True
    while has_more:
        page, has_more = index.page(prefix=prefix, after=found[-1] if found else "", limit=limit)
        assert len(page) == limit if has_more else len(page) <= limit
        found += page
    return found


def test_a_page_begins_behind_the_last_name_of_the_page_before() -> None:
    index = NameIndex()
    for name in ("c", "a", "d", "b"):
        index.add(name)

    assert index.page(prefix="", after="", limit=2) == (["a", "b"], True)
    index.remove("b")
    index.add("aa")
    assert index.page(prefix="", after="b", limit=2) == (["c", "d"], False)


@pytest.mark.parametrize(
    ("prefix", "found"), [("o", ["orders", "orders-1"]), ("orders-", ["orders-1"]), ("x", [])]
)
def test_a_page_has_the_names_with_a_prefix(prefix: str, found: list[str]) -> None:
    index = NameIndex()
    for name in ("orders-1", "payments", "billing", "orders"):
        index.add(name)

    assert all_of(index, prefix=prefix) == found
    assert index.page(prefix=prefix, after="p", limit=1000) == ([], False)


@given(st.lists(NAMES, unique=True), st.lists(NAMES), NAMES, st.integers(1, 4))
def test_pages_together_are_all_names_in_order(
    added: list[str], toggled: list[str], prefix: str, limit: int
) -> None:
    index, model = NameIndex(), set(added)
    for name in added:
        index.add(name)
    for name in toggled:
        (index.remove if name in model else index.add)(name)
        model ^= {name}

    wanted = sorted(name for name in model if name.startswith(prefix))
    assert all_of(index, prefix=prefix, limit=limit) == wanted


def test_the_catalog_lists_topics_without_internal_ones_and_queues() -> None:
    cluster = Cluster(1)
    for name in ("b", "a", "q"):
        cluster.create(name, [1])
    make(cluster, creation(cluster, "one", "a"))
    make(cluster, creation(cluster, "two"))
    cluster.do(DeleteQueue("one"))
    cluster.do(DeleteTopic("b"))

    restored = Catalog.from_snapshot(cluster.state.catalog.snapshot())
    for catalog in (cluster.state.catalog, restored):
        assert all_of(catalog.topic_names) == ["a", "q", "two"]
        assert all_of(catalog.queue_names) == ["two"]


@pytest.mark.parametrize("number", [0, 499, 99_999])
def test_a_page_of_very_many_names_is_found_by_search(number: int) -> None:
    index, names = NameIndex(), [f"q-{each:05d}" for each in range(100_000)]
    Random(0).shuffle(names)
    for name in names:
        index.add(name)

    found, has_more = index.page(prefix="q-", after=f"q-{number:05d}", limit=3)

    assert found == [f"q-{each:05d}" for each in range(number + 1, min(number + 4, 100_000))]
    assert has_more is (number < 99_996)
