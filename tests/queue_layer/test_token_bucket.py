"""Token bucket: the send rate of a queue."""

from random import Random

import pytest

from tidelog.queue_layer.token_bucket import TokenBucket


def test_a_full_bucket_accepts_a_burst_of_one_second() -> None:
    quota = TokenBucket(10, now_ms=0)

    for _ in range(10):
        assert quota.wait_ms(now_ms=0) == 0
        quota.take(1)

    assert 0 < quota.wait_ms(now_ms=0) <= 100


def test_a_large_send_is_accepted_and_leaves_a_debt() -> None:
    quota = TokenBucket(10, now_ms=0)
    assert quota.wait_ms(now_ms=0) == 0
    quota.take(1000)

    wait_ms = quota.wait_ms(now_ms=0)

    assert 99_000 <= wait_ms <= 99_001
    assert quota.wait_ms(now_ms=wait_ms - 2) > 0
    assert quota.wait_ms(now_ms=wait_ms) == 0


@pytest.mark.parametrize("rate", [0.1, 1, 7, 1000])
def test_a_sender_that_waits_as_told_is_never_refused_and_the_rate_holds(rate: float) -> None:
    random, quota = Random(1), TokenBucket(rate, now_ms=0)
    now_ms = sent = 0
    for _ in range(200):
        assert quota.wait_ms(now_ms=now_ms) == 0
        count = random.randrange(1, 20)
        sent += count
        quota.take(count)
        now_ms += quota.wait_ms(now_ms=now_ms)

    assert sent <= rate * (now_ms / 1000 + 1) + 1


def test_a_clock_set_back_changes_no_tokens() -> None:
    quota = TokenBucket(10, now_ms=1_000_000)
    quota.take(20)
    assert quota.wait_ms(now_ms=0) == quota.wait_ms(now_ms=0)
    assert quota.wait_ms(now_ms=1001) == 0


@pytest.mark.parametrize("count", [10, 11])
def test_a_debt_and_an_empty_bucket_refuse_until_a_token_is_left(count: int) -> None:
    quota = TokenBucket(10, now_ms=0)
    quota.take(count)

    wait_ms = quota.wait_ms(now_ms=0)

    assert wait_ms == (count - 10) * 100 + 1
    assert quota.wait_ms(now_ms=wait_ms - 1) == 1
    assert quota.wait_ms(now_ms=wait_ms) == 0
