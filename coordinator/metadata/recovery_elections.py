"""The wait for eligible replicas that have not come back after an unclean end.

Pure: no clock, no I/O. Times are monotonic milliseconds. Unverified replicas are compared before
one of them leads, see `leader_election`. A replica that never comes back, because its disk is lost,
delays the election by `recovery_election_wait_ms`, once.
"""

from typing import final

from tidelog.coordinator.metadata.cluster_config import recovery_election_wait_ms
from tidelog.coordinator.metadata.commands import ElectRecovered
from tidelog.coordinator.metadata.records import PartitionRegistration
from tidelog.coordinator.metadata.state import ClusterState

_AT_ONCE_MAX = 1000
_RETRY_MS = 1_000


def is_log_end_awaited(partition: PartitionRegistration, node_id: int) -> bool:
    """Return whether an election needs the log end of a replica, which its broker must report."""
    return partition.leader is None and any(
        each.node_id == node_id and each.log_end is None for each in partition.unverified_replicas
    )


@final
class RecoveryElections:
    """The times since which leaderless partitions have a report of an eligible replica.

    A later controller starts another wait.
    """

    def __init__(self) -> None:
        """Start without waiting partitions."""
        self._due_at_ms: dict[tuple[bytes, int, int], int] = {}

    def due(self, state: ClusterState, *, now_ms: int) -> ElectRecovered | None:
        """Return the elections whose wait is over, if any.

        The same partition is returned again a while later, as long as it has no leader: none of the
        replicas that have reported may be able to lead now.
        """
        wait_ms = recovery_election_wait_ms(state.config)
        waiting = [
            (topic_id, number, partition.leader_epoch)
            for topic_id, number in state.index.awaiting_reports
            if (partition := state.partition(topic_id, number)) is not None
            and any(
                each.log_end is not None and each.node_id in partition.eligible_leader_replicas
                for each in partition.unverified_replicas
            )
        ]
        self._due_at_ms = {key: self._due_at_ms.get(key, now_ms + wait_ms) for key in waiting}
        due = [key for key, at_ms in self._due_at_ms.items() if at_ms <= now_ms][:_AT_ONCE_MAX]
        self._due_at_ms |= dict.fromkeys(due, now_ms + _RETRY_MS)
        return ElectRecovered(due) if due else None
