"""The return of leaderships to the preferred leaders, a few at a time."""

from tests.coordinator.metadata.clusters import Cluster
from tests.paths import ROOT
from tidelog.coordinator.metadata.preferred_leaders import (
    INTERVAL_MS,
    MOVES_MAX,
    PreferredLeaders,
)


def after_a_restart(partitions: int) -> Cluster:
    cluster = Cluster(1, 2)
    cluster.create("orders", *([1, 2] for _ in range(partitions)))
    cluster.start(1)
    return cluster


def test_without_misplaced_leaders_there_is_no_deadline() -> None:
    cluster = Cluster(1)
    cluster.create("orders", [1])
    preferred = PreferredLeaders(now_ms=0)

    assert preferred.next_deadline_ms(cluster.state) is None
    assert preferred.due(cluster.state, now_ms=10**6) is None


def test_a_leadership_returns_to_the_preferred_leader_in_the_isr() -> None:
    cluster = after_a_restart(2)
    preferred = PreferredLeaders(now_ms=0, interval_ms=1000)
    assert preferred.due(cluster.state, now_ms=1000) is None, "no preferred leader is in its ISR"
    cluster.in_sync(1, 2, number=1)

    command = preferred.due(cluster.state, now_ms=2000)

    assert command is not None
    assert [number for _, number in command.partitions] == [1]
    cluster.do(command)
    assert cluster.partition(number=1).leader == 1


def test_preferred_leader_moves_are_limited_per_interval() -> None:
    cluster = after_a_restart(7)
    for number in range(7):
        cluster.in_sync(1, 2, number=number)
    preferred = PreferredLeaders(now_ms=0, moves_max=3, interval_ms=1000)

    moved: list[tuple[int, int]] = []
    for now_ms in range(0, 5000, 100):
        command = preferred.due(cluster.state, now_ms=now_ms)
        if command is not None:
            cluster.do(command)
            moved.append((now_ms, len(command.partitions)))

    assert moved == [(1000, 3), (2000, 3), (3000, 1)]
    assert preferred.next_deadline_ms(cluster.state) is None


def test_the_documented_number_of_moves_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "metadata.md").read_text(encoding="utf-8")
    assert f"at most {MOVES_MAX} in {INTERVAL_MS / 1000:g} s" in page

    cluster = after_a_restart(MOVES_MAX + 1)
    cluster.ask(2, *(cluster.change(1, 2, number=number) for number in range(MOVES_MAX + 1)))
    preferred = PreferredLeaders(now_ms=0)
    assert preferred.next_deadline_ms(cluster.state) == INTERVAL_MS
    assert preferred.due(cluster.state, now_ms=INTERVAL_MS - 1) is None
    command = preferred.due(cluster.state, now_ms=INTERVAL_MS)

    assert command is not None
    assert len(command.partitions) == MOVES_MAX


def test_no_leadership_returns_to_a_broker_in_shutdown() -> None:
    cluster = Cluster(1, 2, 3)
    cluster.create("orders", [1, 2, 3])
    cluster.start(1)
    cluster.in_sync(1, 2, 3)
    cluster.shut_down(1)

    assert PreferredLeaders(now_ms=0).due(cluster.state, now_ms=10**6) is None
