"""Tests of the shares of keys: a hot key is named, and its share is right within its bound."""

from collections import Counter
from random import Random
from typing import final

import pytest

from tests.broker.broker_requests import batch_of
from tidelog.broker.hot.key_sampler import PARTITIONS_MAX, KeySampler
from tidelog.broker.hot.key_shares import KEY_BYTES_MAX, KeyShare, KeyShares
from tidelog.broker.hot.sampling_budget import CORE_SHARE
from tidelog.wire.batch.compression import Codec
from tidelog.wire.batch.record_batch import Columns, encode_batch, header_of


def batch_with(*keys: bytes | None, codec: Codec = Codec.NONE) -> bytearray:
    columns = Columns(len(keys), keys=list(keys), values=[b"v" * 50] * len(keys))
    return encode_batch(columns, first_timestamp_ms=1, codec=codec)


@final
class Clock:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def sampler_of(seed: int = 1, clock: Clock | None = None) -> KeySampler[str]:
    return KeySampler(Random(seed).random, clock or Clock())


def offer(sampler: KeySampler[str], batch: bytearray, place: str = "orders") -> None:
    sampler.offer(place, header_of(batch), batch)


def begin_of(share: KeyShare) -> bytes:
    return share.key if isinstance(share.key, bytes) else share.key.begin


def top(sampler: KeySampler[str], limit: int = 3, place: str = "orders") -> list[KeyShare]:
    shares = sampler.shares(place)
    return [] if shares is None else shares.top(limit)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4, Codec.ZSTD])
def test_shares_are_exact_while_all_batches_are_sampled(codec: Codec) -> None:
    sampler = sampler_of()

    offer(sampler, batch_with(b"a", b"a", b"b", None, codec=codec))

    assert [(begin_of(each), each.share, each.error) for each in top(sampler)] == [
        (b"a", 0.5, 0.0),
        (b"b", 0.25, 0.0),
    ]
    shares = sampler.shares("orders")
    assert shares is not None
    assert shares.keyless_share == 0.25


def test_records_without_keys_count_in_shares() -> None:
    sampler = sampler_of()

    offer(sampler, batch_of(b"x", b"y", b"z"))
    offer(sampler, batch_with(b"a"))

    assert [each.share for each in top(sampler)] == [0.25]


def test_each_partition_has_its_own_shares_and_few_are_kept() -> None:
    clock = Clock()
    sampler = sampler_of(1, clock)
    for number in range(PARTITIONS_MAX + 1):
        clock.now = float(number)
        offer(sampler, batch_with(b"%d" % number), f"p{number}")
        offer(sampler, batch_with(b"other"), "p0")

    assert begin_of(top(sampler, place="p0")[0]) == b"other"
    assert top(sampler, place="p1") == []
    assert begin_of(top(sampler, place="p2")[0]) == b"2"


def test_the_shares_of_removed_partitions_are_dropped() -> None:
    sampler = sampler_of()
    offer(sampler, batch_with(b"a"), "p0")
    offer(sampler, batch_with(b"b"), "p1")

    sampler.keep({"p1"})

    assert top(sampler, place="p0") == []
    assert begin_of(top(sampler, place="p1")[0]) == b"b"


def test_long_keys_with_the_same_begin_are_told_apart() -> None:
    sampler = sampler_of()
    begin = b"k" * KEY_BYTES_MAX

    offer(sampler, batch_with(begin + b"1", begin + b"22", begin))

    assert list(map(begin_of, top(sampler))) == [begin] * 3
    lengths = [0 if isinstance(each.key, bytes) else each.key.length for each in top(sampler)]
    assert sorted(lengths) == [0, 129, 130]


def test_the_payload_of_a_malformed_batch_is_left_out() -> None:
    sampler = sampler_of()
    batch = batch_with(b"a")
    header = header_of(batch)

    sampler.offer("orders", header, b"\xc1" * len(batch))

    assert top(sampler) == []


def test_a_former_hot_key_is_forgotten_within_minutes() -> None:
    shares = KeyShares(0.0)
    shares.add(Counter({b"old": 1_000}), 1.0, 0.0)
    for second in range(1, 301):
        shares.add(Counter({b"new": 10}), 1.0, float(second))

    new, old = shares.top(2)
    assert begin_of(new) == b"new"
    assert old.share < 0.05


def follow_load(
    seed: int, *, batch_records: int, batches_per_s: int
) -> tuple[KeySampler[str], float]:
    """Offer a minute of traffic, of which one key has a fifth and 100,000 others have the rest.

    Return the sampler, and the exact share of the key.
    """
    clock, random = Clock(), Random(seed)
    sampler = sampler_of(seed, clock)
    keys = [
        b"hot" if random.random() < 0.2 else b"%d" % random.randrange(100_000)
        for _ in range(max(60 * batch_records, 2_000))
    ]
    batches = [
        batch_with(*keys[first : first + batch_records])
        for first in range(0, len(keys), batch_records)
    ]
    for n in range(60 * batches_per_s):
        clock.now = n / batches_per_s
        offer(sampler, batches[n % len(batches)])
    return sampler, keys.count(b"hot") / len(keys)


@pytest.mark.parametrize(
    ("batch_records", "batches_per_s"), [(1, 20), (1, 3_000), (100, 200), (1_000, 100)]
)
def test_a_key_with_a_fifth_of_the_traffic_is_named_within_a_minute(
    batch_records: int, batches_per_s: int
) -> None:
    sampler, share = follow_load(1, batch_records=batch_records, batches_per_s=batches_per_s)

    first, second, *_ = top(sampler)

    assert begin_of(first) == b"hot"
    assert abs(first.share - share) <= first.error + 0.02  # The traffic varies in a minute.
    assert first.error < 0.1
    assert second.share - second.error < 0.1
    assert sampler.budget.spent_us <= 65 * CORE_SHARE * 1e6


def test_shares_of_a_sample_are_within_their_bounds_in_nearly_all_cases() -> None:
    misses = 0
    for seed in range(60):
        shares, random = KeyShares(0.0), Random(seed)
        for n in range(2_000):
            key = b"hot" if random.random() < 0.2 else b"%d" % random.randrange(50)
            if random.random() < 0.05:  # Each batch has a single key: the worst case.
                shares.add(Counter({key: 10}), 0.05, n / 1_000)
        first = shares.top(1)[0]
        assert begin_of(first) == b"hot"
        misses += abs(first.share - 0.2) > first.error

    assert misses <= 6
