"""Wait until a change of the metadata is in force on all brokers.

Shell: asks the other brokers. A broker that does not answer is waited for until its lease has run
out: after that it neither acknowledges nor delivers anything before it has applied the change,
since a lease begins with all metadata from before its heartbeat (`BrokerLifecycle.may_lead`).
"""

from typing import Final

import trio

from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.coordinator.node import ClusterNode
from tidelog.wire.errors import BrokerError, ConnectionLostError
from tidelog.wire.messages.cluster import AwaitMetadataRequest
from tidelog.wire.protocol import api

_LEASE_S: Final = 1.1 * SESSION_MS / 1000
"""Time in seconds after which leases from before now have run out, with clocks that run alike."""
_RETRY_S: Final = 0.1


async def wait_in_force(cluster: ClusterNode) -> list[int]:
    """Wait until every broker has all metadata that this one has now, or cannot act without.

    Return the brokers that did not confirm it, by id. A fenced broker has no lease.
    """
    index = cluster.metadata.applied_index
    waiting = {
        broker.node_id
        for broker in cluster.metadata.state.brokers.values()
        if broker.node_id != cluster.node_id and not broker.is_fenced
    }
    request = AwaitMetadataRequest(cluster.raft.cluster_id, index)

    async def confirm(node_id: int) -> None:
        while True:
            try:
                await cluster.peers.ask(node_id, api.AWAIT_METADATA, request, timeout_s=_LEASE_S)
            except (BrokerError, ConnectionLostError):
                await trio.sleep(_RETRY_S)
            else:
                waiting.discard(node_id)
                return

    with trio.move_on_after(_LEASE_S):
        async with trio.open_nursery() as nursery:
            for node_id in list(waiting):
                nursery.start_soon(confirm, node_id)
    return sorted(waiting)
