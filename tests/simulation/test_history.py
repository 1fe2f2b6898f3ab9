"""Tests of the history checker: it finds each anomaly in a handmade history, and no other."""

import pytest

from tests.simulation.checkers.history import (
    Anomaly,
    HistoryChecker,
    Operation,
    Outcome,
    Poll,
    Send,
    unexpected,
)


def sent(
    value: str, offset: int | None, *, by: str = "p", outcome: Outcome = Outcome.OK
) -> Operation:
    return Operation(by, outcome, [Send("k", value, offset)])


def polled(*entries: tuple[int, str], by: str = "c", seeks: bool = False) -> Operation:
    return Operation(by, Outcome.OK, [Poll({"k": list(entries)})], seeks=seeks)


HEALTHY = [
    sent("a", 0),
    sent("b", 1),
    polled((0, "a")),
    sent("c", None, outcome=Outcome.UNKNOWN),
    polled((1, "b"), (3, "c")),
    sent("d", None, outcome=Outcome.FAILED),
]

CASES = {
    Anomaly.LOST_WRITE: [sent("a", 0), sent("b", 1), polled((1, "b"))],
    Anomaly.UNSEEN: [sent("a", 0), sent("b", 1), polled((0, "a"))],
    Anomaly.INCONSISTENT_OFFSETS: [sent("a", 0), polled((0, "a")), polled((0, "b"), by="d")],
    Anomaly.DUPLICATE: [sent("a", 0), polled((0, "a"), (1, "a"))],
    Anomaly.ABORTED_READ: [sent("a", None, outcome=Outcome.FAILED), polled((0, "a"))],
    Anomaly.PRECOMMITTED_READ: [
        Operation("p", Outcome.OK, [Send("k", "a", 0), Poll({"k": [(0, "a")]})])
    ],
    Anomaly.POLL_SKIP: [
        polled((0, "a")),
        polled((2, "c")),
        polled((0, "a"), (1, "b"), (2, "c"), by="d"),
    ],
    Anomaly.NONMONOTONIC_POLL: [polled((0, "a"), (1, "b")), polled((0, "a"))],
    Anomaly.INT_POLL_SKIP: [polled((0, "a"), (2, "c")), polled((1, "b"), by="d")],
    Anomaly.INT_NONMONOTONIC_POLL: [polled((1, "b"), (0, "a"))],
    Anomaly.INT_NONMONOTONIC_SEND: [
        Operation("p", Outcome.OK, [Send("k", "a", 1), Send("k", "b", 0)]),
        polled((0, "b"), (1, "a")),
    ],
    Anomaly.INT_SEND_SKIP: [
        Operation("p", Outcome.OK, [Send("k", "a", 0), Send("k", "c", 2)]),
        polled((0, "a"), (1, "b"), (2, "c")),
    ],
    Anomaly.NONMONOTONIC_SEND: [sent("a", 1), sent("b", 0), polled((0, "b"), (1, "a"))],
    Anomaly.WRITE_CYCLE: [
        Operation("p", Outcome.OK, [Send("k", "a", 0), Send("l", "d", 1)]),
        Operation("q", Outcome.OK, [Send("k", "b", 1), Send("l", "c", 0)]),
        Operation("c", Outcome.OK, [Poll({"k": [(0, "a"), (1, "b")], "l": [(0, "c"), (1, "d")]})]),
    ],
    Anomaly.READ_CYCLE: [
        Operation("p", Outcome.OK, [Send("k", "a", 0), Poll({"l": [(0, "b")]})]),
        Operation("q", Outcome.OK, [Send("l", "b", 0), Poll({"k": [(0, "a")]})]),
    ],
}


def test_every_kind_of_error_has_a_case() -> None:
    assert list(CASES) == list(Anomaly)


@pytest.mark.parametrize("anomaly", CASES)
def test_an_error_is_found_and_no_other(anomaly: Anomaly) -> None:
    found = HistoryChecker(CASES[anomaly]).check()

    assert set(found) == {anomaly}


def test_a_healthy_history_has_no_error() -> None:
    assert HistoryChecker(HEALTHY).check() == {}


def test_a_gap_between_offsets_is_no_skip() -> None:
    assert HistoryChecker([polled((0, "a")), polled((7, "b"))]).check() == {}


def test_a_seek_may_set_any_position() -> None:
    history = [polled((0, "a"), (1, "b"), (2, "c")), polled((0, "a"), seeks=True)]

    assert HistoryChecker(history).check() == {}


def test_records_deleted_by_retention_are_not_lost() -> None:
    history = [sent("a", 0), sent("b", 1), polled((1, "b"))]

    assert HistoryChecker(history, log_starts={"k": 1}).check() == {}


def test_allowed_anomalies_depend_on_the_clients() -> None:
    found = {Anomaly.POLL_SKIP: ["y"], Anomaly.WRITE_CYCLE: ["z"]}

    assert set(unexpected(found, uses_subscribe=False)) == {Anomaly.POLL_SKIP}
    assert unexpected(found, uses_subscribe=True) == {}


TWICE = polled((0, "a"), (1, "b"), (2, "a"), (3, "b"))
"""One value of `p` and one of `q`, each at two offsets."""


def test_only_a_non_idempotent_producer_may_have_duplicates() -> None:
    history = [sent("a", 2, by="p"), sent("b", 3, by="q"), TWICE]

    one = HistoryChecker(history, may_repeat={"p"}).check()
    both = HistoryChecker(history, may_repeat={"p", "q"}).check()

    assert unexpected(one, uses_subscribe=False) == {Anomaly.DUPLICATE: ["k has b at [1, 3]"]}
    assert unexpected(both, uses_subscribe=False) == {}


def test_a_value_at_a_void_offset_keeps_its_producer() -> None:
    history = [sent("a", 5), polled((0, "a"), (2, "a"))]

    assert HistoryChecker(history, may_repeat={"p"}, void={"k": [range(5, 6)]}).check() == {}


def test_a_value_may_repeat_after_its_producer_state_is_lost() -> None:
    history = [polled((0, "a"), (5, "a"))]

    assert HistoryChecker(history, unknown_below={"k": 1}).check() == {}
    assert set(HistoryChecker(history, unknown_below={"k": 0}).check()) == {Anomaly.DUPLICATE}


def test_replies_about_void_offsets_do_not_count() -> None:
    history = [
        sent("a", 0),
        sent("b", 1),
        polled((0, "a"), (1, "x"), by="d"),
        polled((0, "a"), (2, "c")),
    ]

    assert HistoryChecker(history, void={"k": [range(1, 2)]}).check() == {}
    assert HistoryChecker(history, void={"j": [range(1, 2)]}).check() != {}
    assert set(HistoryChecker(history, void={"k": [range(2)]}).check()) == set()
    assert set(HistoryChecker([sent("a", 0)], void={"k": [range(1, 9)]}).check()) == {
        Anomaly.UNSEEN
    }


def test_a_value_at_an_unknown_offset_may_be_deleted() -> None:
    history = [sent("a", None), sent("b", 5), polled((5, "b"))]

    assert set(HistoryChecker(history).check()) == {Anomaly.UNSEEN}
    assert HistoryChecker(history, log_starts={"k": 3}).check() == {}
    assert HistoryChecker(history, void={"k": [range(2, 4)]}).check() == {}


def test_the_lag_of_readers_is_measured() -> None:
    history = [
        Operation("p", Outcome.OK, [Send("k", "a", 0)], ended_at=1.0),
        Operation("c", Outcome.OK, [Poll({"k": [(0, "a")]})], ended_at=3.5),
    ]

    assert HistoryChecker(history).realtime_lags() == {"k": 2.5}


def test_a_value_read_before_its_acknowledgement_has_no_lag() -> None:
    poll = Poll({"k": [(0, "a")]})
    history = [
        Operation("reader", Outcome.OK, [poll], ended_at=1.0),
        Operation("writer", Outcome.OK, [Send("k", "a", 0)], ended_at=2.0),
        Operation("late reader", Outcome.OK, [poll], ended_at=90.0),
    ]

    assert HistoryChecker(history).realtime_lags() == {}
