"""Fresh records that have to wait are known by when and how many."""

from tidelog.queue_layer.state.unreceived import UnreceivedRecords


def test_what_has_waited_enough_is_not_delayed_any_more() -> None:
    fresh = UnreceivedRecords(5, 0)
    fresh.on_records(20)
    fresh.delay(6, 8, 100)
    fresh.delay(8, 10, 100)
    fresh.delay(12, 13, 50)

    assert fresh.delayed_count == 5
    assert fresh.next_deadline_ms() == 50
    assert fresh.pop_due(50) == [(12, 13, 50)]
    assert list(fresh.delayed(0, 20)) == [(6, 10, 100)]
    assert fresh.pop_due(100) == [(6, 10, 100)]
    assert (fresh.delayed_count, fresh.next_deadline_ms()) == (0, None)


def test_what_is_not_fresh_any_more_is_not_waited_for() -> None:
    fresh = UnreceivedRecords(0, 0)
    fresh.on_records(20)
    fresh.remove(0, 1)
    fresh.delay(2, 10, 100)

    fresh.remove(1, 5)

    assert fresh.delayed_count == 5
    assert fresh.pop_due(100) == [(5, 10, 100)]
