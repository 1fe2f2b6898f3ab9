"""Shared context of all parts of replication on one broker."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeVar

import trio

from tidelog.broker.maintenance.group_commit import GroupCommit
from tidelog.broker.partitions.partition import Partition
from tidelog.broker.partitions.replica_manager import ReplicaManager
from tidelog.coordinator.controller.broker_lifecycle import BrokerLifecycle
from tidelog.coordinator.metadata.commands import Command
from tidelog.coordinator.metadata.state import ClusterState
from tidelog.coordinator.node import ClusterNode
from tidelog.isr.replica_set import REPLICA_LAG_MAX_MS, BrokerStatus
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    ConnectionLostError,
    InvalidRequestError,
    StaleBrokerEpochError,
    WireFormatError,
)
from tidelog.wire.messages.replication import ReplicaIdentity

Item = TypeVar("Item")

_SUBMIT_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class ReplicationContext:
    """The parts of a broker that replication uses."""

    env: Env
    nursery: trio.Nursery
    """For tasks that run as long as the broker."""
    cluster: ClusterNode
    lifecycle: BrokerLifecycle
    partitions: ReplicaManager
    group_commit: GroupCommit
    replica_lag_time_max_ms: int = REPLICA_LAG_MAX_MS

    @property
    def node_id(self) -> int:
        """Node id of this broker."""
        return self.cluster.node_id

    @property
    def state(self) -> ClusterState:
        """The metadata that this broker has."""
        return self.cluster.metadata.state

    def is_open(self, partition: Partition) -> bool:
        """Return whether a replica is still open, and was not closed or replaced."""
        return self.partitions.is_open(partition)

    def status_of(self, node_id: int) -> BrokerStatus | None:
        """Return the status of a broker; see `isr.replica_set.BrokerView`."""
        broker = self.state.brokers.get(node_id)
        return None if broker is None else BrokerStatus(broker.broker_epoch, broker.can_lead)

    def own_identity(self) -> ReplicaIdentity | None:
        """Return the identity of this broker for leaders; `None` before it is registered."""
        broker = self.state.brokers.get(self.node_id)
        epoch = self.lifecycle.broker_epoch
        if broker is None or epoch is None or broker.broker_epoch != epoch:
            return None
        return ReplicaIdentity(
            self.cluster.raft.cluster_id, self.node_id, epoch, broker.incarnation_id
        )

    async def report(
        self,
        command_type: Callable[[int, int, list[Item]], Command],
        items: list[Item],
        *,
        failure: str,
    ) -> bool:
        """Report something of this broker to the controller; return whether the cluster has it.

        If cancelled, the cluster may have it, or not.

        Args:
            command_type: Makes the command of the node id, the broker epoch and the items.
            items: The content of the report.
            failure: Name of the log event of a failure, which gets its reason.
        """
        epoch = self.lifecycle.broker_epoch
        if epoch is None:
            return False
        command = command_type(self.node_id, epoch, items)
        try:
            await self.cluster.command_client.submit(command, timeout_s=_SUBMIT_TIMEOUT_S)
        except (BrokerError, ConnectionLostError, WireFormatError) as error:
            self.env.probe(failure, severity="warning", reason=str(error))
            return False
        return True

    def check_identity(self, identity: ReplicaIdentity) -> None:
        """Raise unless a follower is the process that the metadata has (I63).

        Raises:
            InvalidRequestError: The follower belongs to another cluster.
            StaleBrokerEpochError: The follower is another process, or is not known here yet.
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
                f"broker {identity.node_id} is registered as another process; it was restarted"
                " since, or this broker does not know of it yet"
            )


def now_ms() -> int:
    """Return monotonic time in milliseconds."""
    return int(trio.current_time() * 1000)
