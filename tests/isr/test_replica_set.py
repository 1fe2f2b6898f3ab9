"""What a leader is told of its replicas."""

from tidelog.isr.replica_set import ReplicaSet


def test_there_are_enough_replicas_from_the_minimum_on() -> None:
    assert ReplicaSet((1, 2, 3), (1, 2), 0, 2).has_enough
    assert not ReplicaSet((1, 2, 3), (1,), 0, 2).has_enough
