"""FIFO order of message groups. Numbers in docstrings: docs/queue-statements.md."""

# Counts the blocks in memory.
# pyright: reportPrivateUsage=false

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import islice
from random import Random
from typing import final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.queue_layer.counting_links import CountingLinks
from tidelog.queue_layer.collections.group_links import BLOCK_OFFSETS, NO_LINK, InMemoryGroupLinks
from tidelog.queue_layer.ordering.delivery_order import DeliveryOrder, GroupSize, RecordFields
from tidelog.queue_layer.ordering.fifo_order import FifoOrder


def order_of(groups: str, start: int = 0) -> FifoOrder:
    """Return an order with one message of each of these groups; `-` has no group."""
    order = FifoOrder(start)
    come(order, start, groups)
    return order


def come(order: DeliveryOrder, first: int, groups: str) -> None:
    fields = [RecordFields(group=None if name == "-" else name.encode()) for name in groups]
    order.on_records(first, first + len(fields), fields)


def lease(order: DeliveryOrder, *offsets: int) -> None:
    for offset in offsets:
        order.on_invisible(offset, offset + 1, is_in_flight=True)


def release(order: DeliveryOrder, *offsets: int) -> None:
    for offset in offsets:
        order.on_visible(offset, offset + 1, 0)


def delete(order: DeliveryOrder, *offsets: int) -> None:
    for offset in offsets:
        order.on_deleted(offset, offset + 1)


def bury(order: DeliveryOrder, *offsets: int) -> None:
    for offset in offsets:
        order.on_dead_lettered(offset, offset + 1)


def deliverable(order: DeliveryOrder, limit: int = 1000) -> list[int]:
    ranges = order.candidates(limit, 0)
    return list(islice((offset for first, end, _ in ranges for offset in range(first, end)), limit))


def sizes(order: DeliveryOrder, limit: int = 1000) -> list[tuple[int, int]]:
    """Return messages and invisible ones of the largest groups."""
    steps = order.largest_groups(limit)
    while True:
        try:
            next(steps)
        except StopIteration as stop:
            found: list[GroupSize] = stop.value
            return [(each.message_count, each.not_visible_count) for each in found]


def blocked(order: DeliveryOrder, first: int, end: int) -> list[int]:
    return [o for start, stop in order.blocked(first, end) for o in range(start, stop)]


def test_a_receive_takes_all_messages_of_a_group_before_the_next_group() -> None:
    """Statement 25."""
    order = order_of("ababa")

    assert deliverable(order) == [0, 2, 4, 1, 3]
    assert deliverable(order, 4) == [0, 2, 4, 1]
    assert deliverable(order, 2) == [0, 2]


@pytest.mark.statement("b20")
def test_messages_behind_an_in_flight_message_of_their_group_are_blocked() -> None:
    """Statement 20."""
    order = order_of("aaabb")
    lease(order, 0)

    assert deliverable(order) == [3, 4]
    assert blocked(order, 0, 5) == [1, 2]


@pytest.mark.statement("b20")
def test_the_longest_visible_prefix_of_a_group_is_delivered() -> None:
    """Statement 20."""
    order = order_of("aaaa")
    lease(order, 0, 1, 2, 3)
    release(order, 0, 1, 3)

    assert deliverable(order) == [0, 1]
    assert blocked(order, 0, 4) == [3]


def test_a_released_first_message_is_delivered_alone_while_the_second_is_in_flight() -> None:
    """Statement 21."""
    order = order_of("aaa")
    lease(order, 0, 1)
    release(order, 0)

    assert deliverable(order) == [0]
    assert blocked(order, 0, 3) == [2]


def test_the_second_message_in_flight_blocks_the_third_after_the_first_is_deleted() -> None:
    """Statement 22."""
    order = order_of("aaa")
    lease(order, 0, 1)
    delete(order, 0)

    assert deliverable(order) == []


def test_deleting_all_in_flight_messages_of_a_group_unblocks_it() -> None:
    """Statement 23."""
    order = order_of("aaa")
    lease(order, 0, 1)
    delete(order, 1, 0)

    assert deliverable(order) == [2]


def test_a_send_does_not_unblock_a_blocked_group() -> None:
    """Statement 24."""
    order = order_of("a")
    lease(order, 0)
    come(order, 1, "a")

    assert deliverable(order) == []
    assert blocked(order, 0, 2) == [1]


def test_expired_leases_return_messages_in_group_order() -> None:
    """Statement 26."""
    order = order_of("aaaa")
    lease(order, 0, 1, 2)
    release(order, 2, 0, 1)

    assert deliverable(order) == [0, 1, 2, 3]


def test_a_served_group_goes_behind_others_even_with_visibility_timeout_0() -> None:
    """Statement 27: g1 twice, g2 twice, g3; the last one with visibility timeout 0."""
    order = order_of("11223")
    lease(order, 0, 1)
    release(order, 0, 1)

    assert deliverable(order) == [2, 3, 4, 0, 1]


@pytest.mark.statement("b29")
def test_an_emptied_group_works_again_after_the_next_message() -> None:
    """Statement 29."""
    order = order_of("ab")
    lease(order, 0)
    delete(order, 0)
    assert order.group_count == 1

    come(order, 2, "ab")

    assert deliverable(order) == [1, 3, 2]


def test_a_dead_letter_does_not_block_its_group() -> None:
    """Statement 30."""
    order = order_of("aaa")
    bury(order, 0)
    assert deliverable(order) == [1, 2]

    delete(order, 0)

    assert deliverable(order) == [1, 2]


def test_a_group_of_only_dead_letters_delivers_a_new_message() -> None:
    """Statement 30."""
    order = order_of("aa")
    bury(order, 0, 1)
    come(order, 2, "a")
    assert deliverable(order) == [2]

    delete(order, 1, 2, 0)

    assert order.group_count == 0
    come(order, 3, "a")
    assert deliverable(order) == [3]


def test_a_dead_letter_that_could_not_be_moved_returns_to_its_place() -> None:
    order = order_of("aaaa")
    bury(order, 0, 1)
    lease(order, 2)
    delete(order, 2)

    release(order, 0, 1)

    assert deliverable(order) == [0, 1, 3]


def test_a_dead_letter_behind_the_head_returns_to_its_place() -> None:
    order = order_of("aaaa")
    bury(order, 1, 2)
    assert deliverable(order) == [0, 3]

    release(order, 1)

    assert deliverable(order) == [0, 1, 3]


def test_a_dead_letter_that_returns_delayed_blocks_its_group() -> None:
    order = order_of("aa")
    bury(order, 0)
    lease(order, 0)

    assert deliverable(order) == []


def test_an_invisible_message_blocks_no_other_group() -> None:
    """Statement 31."""
    order = order_of("abab")
    lease(order, 0, 1)
    release(order, 1)

    assert deliverable(order) == [1, 3]


def test_a_delayed_message_blocks_later_messages_of_its_group() -> None:
    order = order_of("aab")
    order.on_invisible(0, 1, is_in_flight=False)

    assert deliverable(order) == [2]


@pytest.mark.statement("b38")
def test_each_message_without_a_key_is_its_own_group() -> None:
    order = order_of("---")
    lease(order, 0)
    assert deliverable(order) == [1, 2]

    delete(order, 0)
    bury(order, 1)
    assert deliverable(order) == [2]
    delete(order, 1, 2)
    assert order.group_count == 0

    order.on_records(3, 5, None)
    assert deliverable(order) == [3, 4]


def test_an_empty_key_is_a_group() -> None:
    order = FifoOrder(0)
    order.on_records(0, 2, [RecordFields(group=b""), RecordFields(group=b"")])
    lease(order, 0)

    assert deliverable(order) == []


def test_candidates_continue_past_the_limit() -> None:
    """The first ones may become dead letters."""
    order = order_of("aaab")

    assert list(order.candidates(1, 0)) == [
        (0, 1, 0),
        (1, 2, 0),
        (2, 3, 0),
        (3, 4, 1),
    ]


def test_an_order_may_start_at_any_offset() -> None:
    order = order_of("ab", start=10 * BLOCK_OFFSETS + 5)
    delete(order, 7)

    assert deliverable(order) == [10 * BLOCK_OFFSETS + 5, 10 * BLOCK_OFFSETS + 6]


def test_records_are_reported_once_and_in_order() -> None:
    order = order_of("ab")

    with pytest.raises(AssertionError):
        come(order, 1, "a")


def test_links_of_done_messages_are_dropped_up_to_the_low_water_mark() -> None:
    links = InMemoryGroupLinks()
    order = FifoOrder(0, links)
    come(order, 0, "ab" * (2 * BLOCK_OFFSETS))
    assert len(links._blocks) == 4

    order.on_deleted(1, 3 * BLOCK_OFFSETS)
    assert len(links._blocks) == 4
    assert deliverable(order, 2) == [0, 3 * BLOCK_OFFSETS]

    delete(order, 0)
    assert len(links._blocks) == 1
    assert links.get(0) == NO_LINK
    assert deliverable(order, 2) == [3 * BLOCK_OFFSETS, 3 * BLOCK_OFFSETS + 2]


def test_a_group_is_removed_with_its_last_message() -> None:
    order = FifoOrder(0)
    for offset in range(5_000):
        order.on_records(offset, offset + 1, [RecordFields(group=b"%d" % offset)])
        delete(order, offset)

    assert order.group_count == 0
    assert order.size_bytes < 20_000


VISIBLE, INVISIBLE, DEAD, DONE = "visible", "invisible", "dead", "done"


def test_the_largest_groups_are_counted_in_steps_among_very_many() -> None:
    order = FifoOrder(0)
    names = [b"%d" % (n if n % 4 else 7) for n in range(100_000)]
    order.on_records(0, len(names), [RecordFields(group=name) for name in names])
    lease(order, 0, 4)
    steps = list(order.largest_groups(2))

    assert sizes(order, 2) == [(25_001, 2), (1, 0)]
    assert len(steps) > 4


def test_dead_letters_do_not_count_in_their_group() -> None:
    order = order_of("aab")
    bury(order, 0)

    assert sizes(order) == [(1, 0), (1, 0)]
    bury(order, 1, 2)
    assert sizes(order) == []
    release(order, 1)
    assert sizes(order) == [(1, 0)]


@final
class NaiveOrder:
    """The rule, with lists: looks at every message each time."""

    def __init__(self) -> None:
        self.messages: list[tuple[str, str]] = []
        """Group and state of each offset."""
        self.turns: list[str] = []
        """Groups whose first message is visible."""

    def came(self, group: str) -> None:
        self.messages.append((f"-{len(self.messages)}" if group == "-" else group, VISIBLE))
        self._settle_turns()

    def became(self, offset: int, state: str) -> None:
        self.messages[offset] = (self.messages[offset][0], state)
        self._settle_turns()

    def deliverable(self) -> list[int]:
        return [offset for group in self.turns for offset in self._beginning(group)]

    def blocked(self) -> list[int]:
        deliverable = self.deliverable()
        return [
            offset
            for offset, (_, state) in enumerate(self.messages)
            if state == VISIBLE and offset not in deliverable
        ]

    def groups(self) -> set[str]:
        return {group for group, state in self.messages if state != DONE}

    def sizes(self) -> list[tuple[int, int]]:
        open_ones = Counter(
            group for group, state in self.messages if state in {VISIBLE, INVISIBLE}
        )
        invisible = Counter(group for group, state in self.messages if state == INVISIBLE)
        return sorted(((count, invisible[group]) for group, count in open_ones.items()))

    def _beginning(self, group: str) -> list[int]:
        found: list[int] = []
        for offset, (other, state) in enumerate(self.messages):
            if other == group and state == INVISIBLE:
                break
            if other == group and state == VISIBLE:
                found.append(offset)
        return found

    def _settle_turns(self) -> None:
        ready = [group for group in dict(self.messages) if self._beginning(group)]
        self.turns = [group for group in self.turns if group in ready]
        self.turns += [group for group in ready if group not in self.turns]


Step = tuple[int, int]


def follow(steps: Iterable[Step], names: Sequence[str]) -> None:
    """Apply the steps to both; compare them after each step."""
    order, model = FifoOrder(0), NaiveOrder()
    tellers = {VISIBLE: release, INVISIBLE: lease, DEAD: bury, DONE: delete}
    for action, place in steps:
        if action <= 2 or not model.messages:
            name = names[place % len(names)]
            come(order, len(model.messages), name)
            model.came(name)
        else:
            offset = place % len(model.messages)
            before = model.messages[offset][1]
            state = [VISIBLE, INVISIBLE, DEAD, DONE, INVISIBLE][action - 3]
            if before == DONE:
                continue
            tellers[state](order, offset)
            model.became(offset, state)
        assert deliverable(order) == model.deliverable()
        assert blocked(order, 0, len(model.messages)) == model.blocked()
        assert order.group_count == len(model.groups())
        assert sorted(sizes(order)) == model.sizes()


@pytest.mark.statement("b20")
@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 30)), max_size=80))
def test_the_fifo_order_matches_a_list_model(steps: list[Step]) -> None:
    follow(steps, "aab-")


@pytest.mark.parametrize("seed", range(8))
def test_long_runs_of_the_fifo_order_match_a_list_model(seed: int) -> None:
    random = Random(seed)
    follow(((random.randrange(8), random.randrange(10**6)) for _ in range(300)), "abcd-")


def looks_of_a_thousand_receives(order: FifoOrder, links: CountingLinks) -> int:
    """Receive and delete one message, a thousand times; return the number of lookups."""
    before = links.count
    for _ in range(1000):
        (offset,) = deliverable(order, 1)
        lease(order, offset)
        delete(order, offset)
    return links.count - before


def with_groups(count: int, rounds: int) -> tuple[FifoOrder, CountingLinks]:
    links = CountingLinks()
    order = FifoOrder(0, links)
    groups = [RecordFields(group=b"%d" % number) for number in range(count)]
    for number in range(rounds):
        order.on_records(number * count, (number + 1) * count, groups)
    return order, links


@pytest.mark.statement("b37")
def test_waiting_groups_cost_a_receive_nothing() -> None:
    few = looks_of_a_thousand_receives(*with_groups(1000, 2))
    many = looks_of_a_thousand_receives(*with_groups(30_000, 2))

    assert many == few


@pytest.mark.statement("b37")
def test_a_blocked_group_of_any_length_costs_a_receive_nothing() -> None:
    order, links = with_groups(1000, 2)
    alone = looks_of_a_thousand_receives(order, links)

    links = CountingLinks()
    order = FifoOrder(0, links)
    order.on_records(0, 20_000, [RecordFields(group=b"slow")] * 20_000)
    lease(order, 0)
    groups = [RecordFields(group=b"%d" % number) for number in range(1000)]
    for number in range(2):
        order.on_records(20_000 + number * 1000, 20_000 + (number + 1) * 1000, groups)

    assert looks_of_a_thousand_receives(order, links) == alone


def test_done_messages_in_the_middle_of_a_group_are_passed_once() -> None:
    """Its first message is redelivered again and again; all after it, except the last, are done."""
    links = CountingLinks()
    order = FifoOrder(0, links)
    order.on_records(0, 10_000, [RecordFields(group=b"a")] * 10_000)
    order.on_deleted(1, 9_999)
    assert deliverable(order) == [0, 9_999]
    before = links.count

    for _ in range(100):
        lease(order, 0)
        release(order, 0)
        assert deliverable(order) == [0, 9_999]

    assert links.count - before < 1000
