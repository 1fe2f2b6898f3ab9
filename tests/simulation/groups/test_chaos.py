"""Tests of members and coordinator together, with and without faults.

Many more runs: `make swarm KIND=groups`.
"""

import pytest

from tests.simulation.groups.chaos import ping_pong, quiet, run


@pytest.mark.parametrize("seed", range(3))
def test_without_faults_a_group_settles_after_each_change(seed: int) -> None:
    quiet(seed)


@pytest.mark.invariant("I76", "I77")
@pytest.mark.parametrize("seed", range(6))
def test_under_faults_a_partition_has_one_owner_and_offsets_never_fall(seed: int) -> None:
    run(seed)


@pytest.mark.invariant("I76", "I77")
@pytest.mark.parametrize("seed", range(3))
def test_old_messages_are_harmless_while_partitions_move(seed: int) -> None:
    ping_pong(seed)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(7), run(7)

    assert first.image.snapshot() == second.image.snapshot()
    assert first.checks.accepted_count == second.checks.accepted_count > 0
