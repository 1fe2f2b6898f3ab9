"""The discovery of a fresh node's cluster and of old data, by requests to other nodes.

Shell around `coordinator.bootstrap.decision` and `coordinator.bootstrap.generation`.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Final

import trio

from tidelog.coordinator.bootstrap.decision import Bootstrap, FormCluster, JoinCluster, WaitForPeers
from tidelog.coordinator.bootstrap.generation import Generation, GenerationCheck
from tidelog.wire.env.env import Env
from tidelog.wire.errors import (
    BrokerError,
    ConnectError,
    ConnectionLostError,
    HandshakeFailedError,
    WireFormatError,
)
from tidelog.wire.messages.cluster import PeerStatusReply, PeerStatusRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.node_rpc import NodeDialer, UnprovenNodeError

ANSWER_TIMEOUT_S: Final = 1.0
ROUND_S: Final = 0.5
_AGAIN_S: Final = 0.1


async def find_cluster(
    env: Env, dialer: NodeDialer, own: PeerStatusReply, *, addresses: Mapping[int, tuple[str, int]]
) -> FormCluster | JoinCluster:
    """Return the decision of a fresh node, as soon as its peers have answered.

    Meanwhile it must answer `PEER_STATUS` requests of the others with `own`.

    Args:
        env: Clock and log.
        dialer: Connects to the peers.
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
                    nursery.start_soon(partial(_ask, dialer, bootstrap, node_id, address=address))
        decision = bootstrap.decide()
        if not isinstance(decision, WaitForPeers):
            return decision
        if decision.reason != reason:
            reason = decision.reason
            env.probe("waiting_for_cluster", node_id=own.peer.node_id, reason=reason)
        await trio.sleep(ROUND_S)


async def find_generation(
    env: Env,
    dialer: NodeDialer,
    check: GenerationCheck,
    *,
    own_id: int,
    addresses: Mapping[int, tuple[str, int]],
) -> Generation:
    """Return the age of this node's data directory, as soon as other nodes have answered.

    Meanwhile it must answer `PEER_STATUS` requests of the others.

    Args:
        env: Clock and log.
        dialer: Connects to the nodes.
        check: Gets the answers.
        own_id: This node.
        addresses: Host and port of the nodes to ask, by node id.
    """
    has_answer = trio.Event()
    refusal = ""
    told_at = trio.current_time() + ANSWER_TIMEOUT_S

    async def ask(address: tuple[str, int]) -> None:
        nonlocal refusal
        while True:
            status = await _status_of(dialer, own_id, address=address)
            if isinstance(status, str):
                refusal = status or refusal
            else:
                check.answered(status, now_ms=_now_ms())
                has_answer.set()
            await trio.sleep(_AGAIN_S)

    async with trio.open_nursery() as nursery:
        for address in addresses.values():
            nursery.start_soon(ask, address)
        while (generation := check.decide(now_ms=_now_ms())) is Generation.UNKNOWN:
            with trio.move_on_after(_AGAIN_S):
                await has_answer.wait()
            has_answer = trio.Event()
            if trio.current_time() >= told_at:
                told_at = math.inf
                reason = "the other voters must say whether this data directory is current"
                if refusal:
                    reason += f"; {refusal}"
                env.probe("waiting_for_cluster", node_id=own_id, reason=reason)
        nursery.cancel_scope.cancel()
    return generation


async def _ask(
    dialer: NodeDialer, bootstrap: Bootstrap, node_id: int, *, address: tuple[str, int]
) -> None:
    """Request the status of one peer; record its answer, or that it is silent."""
    status = await _status_of(dialer, bootstrap.own.peer.node_id, address=address)
    if isinstance(status, str):
        bootstrap.peer_silent(node_id, refusal=status)
    elif status.peer.node_id == node_id:
        bootstrap.peer_answered(status)
    else:
        bootstrap.stranger_answered(node_id, f"{address[0]}:{address[1]}", status.peer.node_id)


async def _status_of(
    dialer: NodeDialer, own_id: int, *, address: tuple[str, int]
) -> PeerStatusReply | str:
    """Return the status of the node at an address.

    If it is silent, return an empty text; if it is no node of this cluster, or one side does not
    accept the certificate of the other, the reason.
    """
    with trio.move_on_after(ANSWER_TIMEOUT_S):
        try:
            async with dialer.open(*address, name=f"node {own_id}") as connection:
                return await connection.ask(api.PEER_STATUS, PeerStatusRequest(own_id))
        except UnprovenNodeError as error:
            return str(error)
        except ConnectionLostError as error:
            cause = error.__cause__ if isinstance(error, ConnectError) else error
            return str(error) if isinstance(cause, HandshakeFailedError) else ""
        except (BrokerError, WireFormatError):
            return ""
    return ""


def _now_ms() -> int:
    """Return monotonic time."""
    return int(trio.current_time() * 1000)
