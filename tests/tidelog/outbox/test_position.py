"""The position of a relay, and the contradictions that it refuses."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.outbox.errors import RelayPositionError
from tidelog.outbox.position import Position, check_table, is_committed

NEW = Position("a" * 32)
DONE = Position("a" * 32, batch=5, relayed_id=40, relayed_at=4000)
UNDER_WAY = Position("a" * 32, 6, relayed_id=40, relayed_at=4000, pending_id=50, pending_at=5000)


def test_a_batch_is_planned_and_committed() -> None:
    assert DONE.planned(50, 5000) == UNDER_WAY
    assert UNDER_WAY.committed() == replace(DONE, batch=6, relayed_id=50, relayed_at=5000)
    assert DONE.committed() == DONE
    assert (DONE.end_id, UNDER_WAY.end_id) == (40, 50)


@pytest.mark.parametrize(
    ("position", "last_committed", "committed"),
    [
        (NEW, None, True),
        (NEW.planned(3, 0), None, False),
        (NEW.planned(3, 0), 1, True),
        (DONE, 5, True),
        (UNDER_WAY, 5, False),
        (UNDER_WAY, 6, True),
    ],
)
def test_the_cluster_knows_whether_the_last_batch_is_committed(
    position: Position, last_committed: int | None, *, committed: bool
) -> None:
    assert is_committed(position, last_committed) is committed


@pytest.mark.parametrize(
    ("position", "last_committed", "why"),
    [
        (NEW, 1, "it was restored from an older state"),
        (DONE, 6, "cluster has committed batch 6, and the database is at batch 5: it was restored"),
        (UNDER_WAY, 7, "it was restored from an older state"),
        (DONE, 4, "the cluster has committed only batch 4: it lost its metadata"),
        (UNDER_WAY, 4, "it lost its metadata"),
        (DONE, None, "at batch 5, and the cluster knows none: no relay ran for 7 days, or this is"),
        (UNDER_WAY, None, "no relay ran for 7 days"),
    ],
)
def test_contradictions_are_refused(
    position: Position, last_committed: int | None, why: str
) -> None:
    with pytest.raises(RelayPositionError, match=why) as failure:
        is_committed(position, last_committed)

    assert "then choose with: tidelog outbox reset" in str(failure.value)


@given(st.lists(st.sampled_from(["plan", "commit", "mark", "crash"])))
def test_a_relay_never_contradicts_its_own_steps(steps: list[str]) -> None:
    """The relay dies after any of its steps: plan, commit in the cluster, mark."""
    saved = memory = NEW
    last_committed: int | None = None
    for step in steps:
        if step == "plan" and memory.pending_id is None:
            saved = memory = memory.planned(memory.relayed_id + 1, 0)
        elif step == "commit" and memory.pending_id is not None:
            last_committed, memory = memory.batch, memory.committed()
        elif step == "mark":
            saved = memory
        elif step == "crash":
            memory = saved.committed() if is_committed(saved, last_committed) else saved
        assert memory.relayed_id == (last_committed or 0)


def test_a_table_whose_ids_began_again_is_refused() -> None:
    check_table(DONE, last_id=40, found_at=4000)
    check_table(DONE, last_id=99, found_at=None)  # the row is deleted
    check_table(replace(DONE, relayed_at=None), last_id=40, found_at=1)  # after a reset
    for position, last_id, found_at, why in [
        (DONE, 39, None, "the last row id is 39, and rows up to 40 were sent"),
        (UNDER_WAY, 49, None, "the last row id is 49, and rows up to 50 were sent"),
        (DONE, 99, 4001, "row 40 is another one than the row that was sent"),
    ]:
        with pytest.raises(RelayPositionError, match=why):
            check_table(position, last_id=last_id, found_at=found_at)
