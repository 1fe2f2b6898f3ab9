"""Messages that are back come by their time, whatever is taken out in between."""

from tidelog.queue_layer.collections.redeliverable import RedeliverableMessages


def test_the_longest_visible_message_is_the_first() -> None:
    returned = RedeliverableMessages()
    returned.add(0, 5, 300)
    returned.add(5, 9, 100)
    returned.add(20, 21, 200)

    assert list(returned) == [(5, 9), (20, 21), (0, 5)]
    assert len(returned) == 3


def test_what_is_taken_from_the_middle_leaves_both_ends() -> None:
    returned = RedeliverableMessages()
    returned.add(0, 5, 100)
    returned.add(5, 9, 50)

    returned.remove(2, 6)

    assert list(returned) == [(6, 9), (0, 2)]
    returned.remove(0, 100)
    assert list(returned) == []
    returned.remove(0, 100)
