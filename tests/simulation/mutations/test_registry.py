"""Tests that runs find mutations quickly; `make mutants` tries all, each in its own process."""

from collections.abc import Callable, Iterator

import pytest

from tests.client.consumer.group.test_membership_protocol import (
    test_a_reply_that_comes_too_late_changes_nothing as a_late_reply,
)
from tests.simulation.kinds import KINDS
from tests.simulation.mutations.by_time import BY_TIME
from tests.simulation.mutations.measure import is_objection
from tests.simulation.mutations.mutation import Mutation
from tests.simulation.mutations.registry import MUTATIONS, find_mutation

RARE = {"old-replies-believed", "log-ends-without-epochs"}
"""Mutations that only one random run in a hundred finds: `make mutants` tries them."""

CHOSEN: list[tuple[str, float, range, tuple[str, ...]]] = [
    ("broker", 10.0, range(8), ("flush-does-nothing", "no-dedup")),
    ("broker", 5.0, range(1, 3), ("older-clients-get-both-formats", "rewritten-in-reverse")),
    ("compacted", 12.0, range(1), ("newest-goes-too",)),
    ("compacted", 6.0, range(1, 4), ("rewritten-without-gaps",)),
    ("cluster", 3.0, range(7, 10), ("name-given-twice", "commits-alone")),
    ("cluster", 10.0, range(6), ("commit-alone",)),
    (
        "cluster",
        10.0,
        range(1),
        ("strangers-served", "proof-not-bound-to-role"),
    ),
    ("cluster", 10.0, range(8, 9), ("proof-not-bound-to-nonce",)),
    ("queues", 2.0, range(5, 8), ("count-lost-with-leader",)),
    (
        "raft",
        KINDS["raft"].seconds,
        range(60),
        (
            "vote-twice",
            "any-log-is-up-to-date",
            "no-term-start",
            "no-pre-vote",
            "no-check-quorum",
            "learner-counts",
            "any-leader-obeyed",
        ),
    ),
    ("raft", KINDS["raft"].seconds, range(220, 225), ("start-leaves-old-log",)),
]
"""Mutations of long runs: kind of the runs, seconds with faults, seeds, names."""

SEED_COUNTS = {
    "three_brokers": 25,
    "counts": 10,
    "transactions": 20,
    "processing": 10,
    "encryption": 8,
    "groups": 20,
    "metadata": 40,
    "isr": 120,
}
"""Kinds with short runs, and the number of seeds that find all their mutations."""

FIRST_SEEDS = {
    "a-damaged-replica-joins": 96,
    "no-step-down": 39,
    "truncate-only-what-is-too-long": 24,
    "truncate-below-the-high-watermark": 39,
    "a-lost-answer-is-never-settled": 242,
    "copies-given-up": 101,
    "join-with-a-stale-broker-epoch": 10,
    "high-watermark-before-truncation": 8,
    "durability-forgotten": 170,
    "journal-holds-up": 213,
    "given-up-stays-eligible": 32,
    "commit-of-an-old-epoch": 8,
    "released-by-a-heartbeat-from-before": 8,
    "repair-without-comparing": 12,
    "letting-go-forgotten-beside-a-subscription": 5,
    "offline-for-ever": 150,
    "acknowledged-by-the-leader-alone": 5,
    "transaction-appended-again": 27,
    "sent-counted-by-the-server-of-the-queue": 4,
    "transaction-dropped-early": 8,
    "a-missing-key-counts-as-deleted": 1,
    "a-wrong-master-key-wraps-new-data-keys": 3,
    "journal-goes-ahead": 29,
    "logs-are-not-compared": 5,
    "offline-leads": 39,
}
"""First seeds for mutations that few runs find, or only late ones."""


def cases() -> Iterator[tuple[str, str, float, range]]:
    for kind, seconds, seeds, names in CHOSEN:
        for name in names:
            yield kind, name, seconds, seeds
    for kind, count in SEED_COUNTS.items():
        for mutation in MUTATIONS[kind]:
            if mutation.name not in RARE:
                first = FIRST_SEEDS.get(mutation.name, 0)
                yield kind, mutation.name, KINDS[kind].seconds, range(first, first + count)


CASES = list(cases())


@pytest.mark.parametrize(
    ("kind_name", "mutation", "seconds", "seeds"),
    CASES,
    ids=[f"{kind}-{name}" for kind, name, *_ in CASES],
)
def test_a_mutation_is_found(
    kind_name: str, mutation: str, seconds: float, *, seeds: range
) -> None:
    kind = KINDS[kind_name]
    runs = (kind.run_plan(kind.draw_plan(seed, seconds), mutation) for seed in seeds)

    assert any(is_objection(run) for run in runs)


def test_a_rare_mutation_fails_its_scenario_test() -> None:
    with find_mutation("old-replies-believed").applied(), pytest.raises(AssertionError):
        a_late_reply()


@pytest.mark.parametrize(("mutation", "test"), BY_TIME, ids=[each.name for each, _ in BY_TIME])
def test_a_mutation_fails_its_test_in_virtual_time(
    mutation: Mutation, test: Callable[[], None]
) -> None:
    test()

    failed: BaseException | None = None
    with mutation.applied():
        try:
            test()
        except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (any failure will do)
            failed = error

    assert failed is not None
