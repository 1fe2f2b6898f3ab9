"""The core that judges, tried with every fault that it is there to find."""

import pytest

from tidelog.demo.verification import Consumed, Place, Verdict, verify

KEYS = [b"a", b"b", b"a", None, b"b", None]
VALUES = [b"0", b"1", b"2", b"3", b"4", b"5"]
ACKNOWLEDGED = {
    0: Place(0, 0), 2: Place(0, 1), 3: Place(0, 2),
    1: Place(1, 0), 4: Place(1, 1), 5: Place(1, 2),
}  # fmt: skip
FLAWLESS = [
    Consumed(0, 0, b"a", b"0"),
    Consumed(1, 0, b"b", b"1"),
    Consumed(1, 1, b"b", b"4"),
    Consumed(0, 1, b"a", b"2"),
    Consumed(0, 2, None, b"3"),
    Consumed(1, 2, None, b"5"),
]


def judged(consumed: list[Consumed], acknowledged: dict[int, Place] | None = None) -> Verdict:
    return verify(
        KEYS, VALUES, ACKNOWLEDGED if acknowledged is None else acknowledged, consumed=consumed
    )


def test_everything_in_its_place_is_flawless() -> None:
    verdict = judged(FLAWLESS)

    assert verdict.is_flawless
    assert verdict.summary() == "no record is missing, duplicated or out of order"


def test_what_was_acknowledged_and_is_not_there_is_missing() -> None:
    verdict = judged(FLAWLESS[1:])

    assert not verdict.is_flawless
    assert verdict.summary() == (
        "1 acknowledged records are missing (number 0 of a, acknowledged at 0/0)"
    )


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    acknowledged = {number: ACKNOWLEDGED[number] for number in range(1, 6)}

    assert judged(FLAWLESS, acknowledged).is_flawless
    assert judged(FLAWLESS[1:], acknowledged).is_flawless


def test_what_is_elsewhere_than_acknowledged_is_missing_there() -> None:
    verdict = judged(FLAWLESS, {**ACKNOWLEDGED, 0: Place(0, 7)})

    assert verdict.missing == ["number 0 of a, acknowledged at 0/7"]


def test_a_place_that_was_not_told_is_not_compared() -> None:
    assert judged(FLAWLESS, {**ACKNOWLEDGED, 0: Place(0, None)}).is_flawless
    assert judged(FLAWLESS, {**ACKNOWLEDGED, 0: Place(1, None)}).missing == [
        "number 0 of a, acknowledged at 1/?"
    ]


def test_what_comes_twice_is_found() -> None:
    verdict = judged([*FLAWLESS, Consumed(0, 3, b"a", b"2")])

    assert verdict.duplicated == ["number 2 of a at 0/3 and 0/1"]
    assert not verdict.is_flawless


def test_records_of_one_key_in_another_order_are_found() -> None:
    swapped = [Consumed(0, 0, b"a", b"2"), Consumed(0, 1, b"a", b"0"), *FLAWLESS[1:3]]

    verdict = judged(swapped, {})

    assert verdict.disordered == ["number 0 of a at 0/1 after number 2"]
    assert not verdict.is_flawless


def test_records_of_one_key_in_two_partitions_have_no_order() -> None:
    verdict = judged([Consumed(0, 0, b"a", b"0"), Consumed(1, 0, b"a", b"2")], {})

    assert verdict.disordered == ["number 2 of a at 1/0, others in partition 0"]


def test_records_without_a_key_have_the_order_of_their_partition() -> None:
    apart = [Consumed(0, 0, None, b"5"), Consumed(1, 0, None, b"3")]
    together = [Consumed(0, 0, None, b"5"), Consumed(0, 1, None, b"3")]

    assert judged(apart, {}).is_flawless
    assert judged(together, {}).disordered == ["number 3 at 0/1 after number 5"]


@pytest.mark.parametrize(
    "record",
    [
        Consumed(0, 0, b"a", b"changed"),
        Consumed(0, 0, b"b", b"0"),
        Consumed(0, 0, None, b"0"),
        Consumed(0, 0, b"a", None),
    ],
)
def test_what_was_never_produced_like_this_is_found(record: Consumed) -> None:
    verdict = judged([record], {})

    assert verdict.foreign == ["0/0"]
    assert not verdict.is_flawless


def test_a_summary_counts_all_and_shows_some() -> None:
    verdict = judged([], ACKNOWLEDGED)

    assert verdict.summary().startswith("6 acknowledged records are missing (number 0 of a, ")
    assert verdict.summary().count("acknowledged at") == 3
