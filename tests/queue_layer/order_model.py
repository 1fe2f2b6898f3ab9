"""Property of every order without groups: visible messages are offered, once, and no others."""

from collections.abc import Sequence
from itertools import islice

from hypothesis import strategies as st

from tidelog.queue_layer.ordering.delivery_order import DeliveryOrder, RecordFields

RECORDS = 24
Change = tuple[str, int, int, int]

changes = st.lists(
    st.tuples(
        st.sampled_from(["in_flight", "delayed", "visible", "dead", "done"]),
        st.integers(0, RECORDS - 1),
        st.integers(1, 6),
        st.integers(0, 5),
    ),
    max_size=30,
)


def chosen(order: DeliveryOrder, limit: int, turn: int = 1) -> list[int]:
    """Return the messages that a receive would get."""
    offsets = (o for first, end, _ in order.candidates(limit, turn) for o in range(first, end))
    return list(islice(offsets, limit))


def check_order(
    order: DeliveryOrder, fields: Sequence[RecordFields] | None, told: list[Change], *, limit: int
) -> None:
    """Apply changes to an order, as a queue does, and check after each what it offers."""
    order.on_records(0, RECORDS, fields)
    visible, done = set(range(RECORDS)), set[int]()
    for turn, (change, first, count, time_ms) in enumerate(told):
        for offset in set(range(first, min(RECORDS, first + count))) - done:
            match change:
                case "in_flight" | "delayed":
                    order.on_invisible(offset, offset + 1, is_in_flight=change == "in_flight")
                    visible.discard(offset)
                case "visible":
                    if offset not in visible:
                        order.on_visible(offset, offset + 1, time_ms)
                    visible.add(offset)
                case "dead":
                    order.on_dead_lettered(offset, offset + 1)
                    visible.discard(offset)
                case _:
                    order.on_deleted(offset, offset + 1)
                    visible.discard(offset)
                    done.add(offset)
        offered = [o for a, b, _ in order.candidates(limit, turn) for o in range(a, b)]
        assert sorted(offered) == sorted(visible)
