"""Wrong replies: backoff, reports, and runs that last."""

from random import Random

from tidelog.client.cluster.address import Address
from tidelog.client.cluster.backoff import Backoff
from tidelog.client.cluster.wrong_replies import WrongReplies
from tidelog.wire.errors import WireFormatError
from tidelog.wire.protocol.api import ApiKey

HERE, THERE = Address("here", 1), Address("there", 1)
FETCH, METADATA = ApiKey.FETCH, ApiKey.METADATA


def wrong_replies() -> WrongReplies:
    return WrongReplies(Backoff(0.1, 1.0, Random(1)))


def add(made: WrongReplies, now: float, *apis: ApiKey, at: Address = HERE) -> int:
    return made.add(at, apis or [FETCH], WireFormatError(f"at {now}"), now=now)


def waits(made: WrongReplies, count: int, now: float) -> list[float]:
    found: list[float] = []
    for _ in range(count):
        add(made, now)
        found.append(made.retry_at(HERE) - now)
    return found


def test_the_wait_before_a_connection_doubles_up_to_its_maximum() -> None:
    for place, wait in enumerate(waits(wrong_replies(), 8, now=50.0)):
        mean = min(1.0, 0.1 * 2**place)
        assert 0.49 * mean <= wait <= 1.51 * mean


def test_the_wait_is_short_again_after_ten_seconds_without_a_wrong_reply() -> None:
    made = wrong_replies()
    assert waits(made, 8, now=50.0)[-1] > 0.4
    assert waits(made, 1, now=59.9)[0] > 0.4
    assert waits(made, 1, now=70.0)[0] < 0.2


def test_each_broker_has_its_own_wait() -> None:
    made = wrong_replies()
    add(made, 50.0)

    assert made.knows(HERE, 50.0)
    assert not made.knows(THERE, 50.0)
    assert made.retry_at(THERE) < 0
    assert made.addresses == [HERE]


def test_wrong_replies_of_one_minute_are_reported_once() -> None:
    made = wrong_replies()

    reported = [add(made, float(second)) for second in range(0, 130, 10)]

    assert reported == [1, 0, 0, 0, 0, 0, 6, 0, 0, 0, 0, 0, 6]
    assert add(made, 125.0, at=THERE) == 1


def test_a_run_of_wrong_replies_lasts_from_the_first_to_the_latest() -> None:
    made = wrong_replies()
    for now in (50.0, 60.0, 79.0):
        add(made, now)
    assert made.lasting(HERE, 30.0, ApiKey) is None
    assert made.lasting(THERE, 0.0, ApiKey) is None

    add(made, 80.0)

    assert str(made.lasting(HERE, 30.0, ApiKey)) == "at 80.0"
    assert made.lasting(HERE, 30.0, [METADATA]) is None


def test_a_right_reply_ends_the_run_of_its_api_alone() -> None:
    made = wrong_replies()
    add(made, 50.0, FETCH, METADATA)
    made.understood(HERE, FETCH)
    made.understood(THERE, FETCH)

    add(made, 80.0, FETCH, METADATA)

    assert made.lasting(HERE, 30.0, [FETCH]) is None
    assert made.lasting(HERE, 30.0, [METADATA]) is not None


def test_wrong_replies_more_than_a_minute_apart_are_no_run() -> None:
    made = wrong_replies()
    add(made, 50.0)
    assert made.knows(HERE, 110.0)
    assert not made.knows(HERE, 110.1)
    add(made, 110.0)

    for now in (111.0, 150.0, 190.0):
        add(made, now, METADATA)
    add(made, 191.0)

    assert made.lasting(HERE, 30.0, [FETCH]) is None
    assert made.lasting(HERE, 30.0, [METADATA]) is not None


def test_a_broker_without_wrong_replies_for_a_minute_is_forgotten() -> None:
    made = wrong_replies()
    add(made, 50.0, at=THERE)
    add(made, 111.0)

    assert made.addresses == [HERE]
