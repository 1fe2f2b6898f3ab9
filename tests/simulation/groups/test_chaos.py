"""Members and coordinator together, in worlds good and bad; and whether the checks would notice.

Many more runs: `make swarm KIND=groups`.
"""

import pytest

from tests.client.consumer.group.test_membership_protocol import (
    test_a_member_that_is_not_answered_stops_before_others_may_begin as a_silent_coordinator,
)
from tests.client.consumer.group.test_membership_protocol import (
    test_a_reply_that_comes_too_late_changes_nothing as a_late_reply,
)
from tests.coordinator.groups.test_commits import (
    test_a_commit_from_before_the_partition_went_and_came_back_does_not_count as an_old_commit,
)
from tests.coordinator.groups.test_reconciliation import (
    test_an_assignment_that_was_not_seen_is_said_again as a_lost_reply,
)
from tests.coordinator.groups.test_reconciliation import (
    test_an_old_heartbeat_does_not_let_go_of_what_came_back as an_old_heartbeat,
)
from tests.simulation.groups.chaos import check_all, ping_pong, quiet, run
from tests.simulation.mutations.groups import MUTATIONS
from tests.simulation.mutations.mutation import Mutation


@pytest.mark.parametrize("seed", range(3))
def test_in_a_good_world_a_group_settles_after_each_change(seed: int) -> None:
    quiet(seed)


@pytest.mark.parametrize("seed", range(6))
def test_whatever_happens_a_partition_has_one_owner_and_offsets_never_fall(seed: int) -> None:
    """I76, I77."""
    run(seed)


@pytest.mark.parametrize("seed", range(3))
def test_old_messages_do_no_harm_while_partitions_go_to_and_fro(seed: int) -> None:
    """I76, I77."""
    ping_pong(seed)


def test_the_same_seed_is_the_same_run() -> None:
    first, second = run(7), run(7)

    assert first.image.snapshot() == second.image.snapshot()
    assert first.checks.accepted_count == second.checks.accepted_count > 0


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_a_mutation_is_found(mutation: Mutation) -> None:
    # A violation, a broken invariant, or a story that ends otherwise: all are assertions.
    with mutation.applied(), pytest.raises(AssertionError):
        run_everything()


def run_everything() -> None:
    # Stories for what random runs meet rarely; `make mutants KIND=groups` says how rarely.
    for story in (
        an_old_commit,
        an_old_heartbeat,
        a_lost_reply,
        a_silent_coordinator,
        a_late_reply,
    ):
        story()
    for seed in range(20):
        check_all(seed)
