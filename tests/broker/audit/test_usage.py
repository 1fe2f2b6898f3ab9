"""Tests of the fold of usage: exact below its maximum, bounded above."""

from tidelog.broker.audit.usage import OTHER, UsageFold
from tidelog.wire.security.principal import ANONYMOUS, user_principal

ALICE, BOB = user_principal("alice"), user_principal("bob")


def bytes_in(fold: UsageFold) -> dict[tuple[str, str], int]:
    return {(principal, topic): usage.bytes_in for principal, topic, usage in fold.take()}


def test_usage_is_counted_for_each_principal_and_topic() -> None:
    fold = UsageFold()

    fold.of(ALICE, "topic:orders").bytes_in += 100
    fold.of(ALICE, "topic:orders").bytes_in += 10
    fold.of(ALICE, "topic:other").bytes_in += 1
    fold.of(ANONYMOUS, "topic:orders").bytes_in += 5

    assert bytes_in(fold) == {
        ("user:alice", "topic:orders"): 110,
        ("user:alice", "topic:other"): 1,
        ("anonymous", "topic:orders"): 5,
    }
    assert fold.take() == []


def test_topics_beyond_the_maximum_share_one_count_for_each_principal() -> None:
    fold = UsageFold(pairs_max=20)

    for number in range(1_000):
        fold.of(ALICE, f"topic:t{number}").bytes_in += 1
        fold.of(BOB, f"topic:t{number}").bytes_in += 1

    counts = bytes_in(fold)
    assert len(counts) <= 20 + 2
    assert sum(counts.values()) == 2_000
    assert counts["user:alice", OTHER] == counts["user:bob", OTHER] == 990


def test_principals_beyond_the_maximum_share_one_count() -> None:
    fold = UsageFold(pairs_max=20)

    for number in range(1_000):
        fold.of(user_principal(f"user{number}"), "topic:orders").bytes_in += 1

    counts = bytes_in(fold)
    assert len(counts) == 3
    assert counts[OTHER, OTHER] == 998
