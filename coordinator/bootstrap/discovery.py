"""The discovery of a fresh node's cluster, by requests to its peers.

Shell around `coordinator.bootstrap.decision`.
"""

from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from tidelog.coordinator.bootstrap.decision import Bootstrap, FormCluster, JoinCluster, WaitForPeers
from tidelog.wire.env.env import Env
from tidelog.wire.errors import BrokerError, ConnectionLostError, WireFormatError
from tidelog.wire.messages.cluster import PeerStatusReply, PeerStatusRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import open_rpc

ANSWER_TIMEOUT_S: Final = 1.0
ROUND_S: Final = 0.5


async def find_cluster(
    env: Env, own: PeerStatusReply, addresses: Mapping[int, tuple[str, int]]
) -> FormCluster | JoinCluster:
    """Return the decision of a fresh node, as soon as its peers have answered.

    Meanwhile it must answer `PEER_STATUS` requests of the others with `own`.

    Args:
        env: Clock and network.
        own: This node's status.
        addresses: Host and port of every peer, by node id; its own entry is ignored.

    Raises:
        ConfigError: The peers contradict each other; one line says why.
    """
    bootstrap = Bootstrap(own)
    reason = ""
    while True:
        async with trio.open_nursery() as nursery:
            for node_id, address in addresses.items():
                if node_id != own.peer.node_id:
                    nursery.start_soon(partial(_ask, env, bootstrap, node_id, address=address))
        decision = bootstrap.decide()
        if not isinstance(decision, WaitForPeers):
            return decision
        if decision.reason != reason:
            reason = decision.reason
            env.probe("waiting_for_cluster", node_id=own.peer.node_id, reason=reason)
        await trio.sleep(ROUND_S)


async def _ask(env: Env, bootstrap: Bootstrap, node_id: int, *, address: tuple[str, int]) -> None:
    """Request the status of one peer; record its answer, or that it is silent."""
    own_id = bootstrap.own.peer.node_id
    with trio.move_on_after(ANSWER_TIMEOUT_S):
        try:
            async with open_rpc(
                env.network, *address, client_id=f"node {own_id}", client_version=""
            ) as connection:
                status = await connection.ask(api.PEER_STATUS, PeerStatusRequest(own_id))
        except (BrokerError, ConnectionLostError, WireFormatError):
            bootstrap.peer_silent(node_id)
            return
        if status.peer.node_id == node_id:
            bootstrap.peer_answered(status)
            return
        bootstrap.stranger_answered(node_id, f"{address[0]}:{address[1]}", status.peer.node_id)
        return
    bootstrap.peer_silent(node_id)
