"""How much may be sent to a queue."""

from random import Random

import pytest

from tidelog.queue_layer.token_bucket import TokenBucket


def test_what_a_second_takes_may_come_at_once() -> None:
    quota = TokenBucket(10, now_ms=0)

    for _ in range(10):
        assert quota.wait_ms(now_ms=0) == 0
        quota.take(1)

    assert 0 < quota.wait_ms(now_ms=0) <= 100


def test_no_send_is_too_large_for_ever_but_it_has_to_be_paid_back() -> None:
    quota = TokenBucket(10, now_ms=0)
    assert quota.wait_ms(now_ms=0) == 0
    quota.take(1000)

    wait_ms = quota.wait_ms(now_ms=0)

    assert 99_000 <= wait_ms <= 99_001
    assert quota.wait_ms(now_ms=wait_ms - 2) > 0
    assert quota.wait_ms(now_ms=wait_ms) == 0


@pytest.mark.parametrize("rate", [0.1, 1, 7, 1000])
def test_who_waits_as_long_as_told_is_never_refused_and_the_rate_is_kept(rate: float) -> None:
    random, quota = Random(1), TokenBucket(rate, now_ms=0)
    now_ms = sent = 0
    for _ in range(200):
        assert quota.wait_ms(now_ms=now_ms) == 0
        count = random.randrange(1, 20)
        sent += count
        quota.take(count)
        now_ms += quota.wait_ms(now_ms=now_ms)

    assert sent <= rate * (now_ms / 1000 + 1) + 1


def test_a_clock_that_is_set_back_gives_nothing_and_takes_nothing() -> None:
    quota = TokenBucket(10, now_ms=1_000_000)
    quota.take(20)
    assert quota.wait_ms(now_ms=0) == quota.wait_ms(now_ms=0)
    assert quota.wait_ms(now_ms=1001) == 0
