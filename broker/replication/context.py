"""What all parts of replication on one broker share."""

from dataclasses import dataclass

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.controller.broker_lifecycle import BrokerLifecycle
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.node import ClusterNode
from tidelog.isr.replica_set import REPLICA_LAG_MAX_MS, BrokerStatus
from tidelog.wire.env.env import Env
from tidelog.wire.errors import InvalidRequestError, StaleBrokerEpochError
from tidelog.wire.messages.replication import ReplicaIdentity


@dataclass(frozen=True, slots=True)
class ReplicationContext:
    """A broker, as far as its replicas are concerned."""

    env: Env
    nursery: trio.Nursery
    """For tasks that live as long as the broker."""
    cluster: ClusterNode
    lifecycle: BrokerLifecycle
    partitions: ReplicaManager
    group_commit: GroupCommit
    replica_lag_time_max_ms: int = REPLICA_LAG_MAX_MS

    @property
    def node_id(self) -> int:
        """This broker."""
        return self.cluster.node_id

    @property
    def state(self) -> ClusterState:
        """The metadata, as far as it is known here."""
        return self.cluster.metadata.state

    def is_open(self, partition: Partition) -> bool:
        """Return whether a replica is still there, and not closed, or another one in its place."""
        return self.partitions.replica(*partition.key) is partition

    def status_of(self, node_id: int) -> BrokerStatus | None:
        """Return what is known of a broker; see `isr.replica_set.BrokerView`."""
        broker = self.state.brokers.get(node_id)
        return None if broker is None else BrokerStatus(broker.broker_epoch, broker.can_lead)

    def own_identity(self) -> ReplicaIdentity | None:
        """Return what this broker says of itself to leaders; `None` before it is registered."""
        broker = self.state.brokers.get(self.node_id)
        epoch = self.lifecycle.broker_epoch
        if broker is None or epoch is None or broker.broker_epoch != epoch:
            return None
        return ReplicaIdentity(
            self.cluster.raft.cluster_id, self.node_id, epoch, broker.incarnation_id
        )

    def check_identity(self, identity: ReplicaIdentity) -> None:
        """Check that a follower is the process that the metadata knows (I63).

        Raises:
            InvalidRequestError: It is of another cluster.
            StaleBrokerEpochError: It is another process, or not known here yet.
        """
        if identity.cluster_id != self.cluster.raft.cluster_id:
            raise InvalidRequestError(
                f"this is a broker of cluster {self.cluster.raft.cluster_id}, not of"
                f" {identity.cluster_id}"
            )
        broker = self.state.brokers.get(identity.node_id)
        known = None if broker is None else (broker.broker_epoch, broker.incarnation_id)
        if known != (identity.broker_epoch, identity.incarnation_id):
            raise StaleBrokerEpochError(
                f"broker {identity.node_id} is not known here as that process; it was started anew"
                " since, or this broker has not heard of it yet"
            )


def now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
