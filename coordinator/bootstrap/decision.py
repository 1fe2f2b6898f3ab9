"""The decision by which nodes with the same list of peers become one cluster, once.

Pure: no clock, no I/O. A node with an empty data directory may be one of the first nodes, or come
late to an existing cluster. So it asks all of its peers:

- If a peer belongs to a cluster, the node joins that one.
- If all peers answered, and none belongs to a cluster, the node with the lowest id forms it, with
  the identities from their answers.
- If another node answers at the address of a peer, the list is wrong.
- If a peer is silent, the node waits. Two halves that each form a cluster of their own would both
  accept writes under one name, so a cluster starts only when all peers answer.

A node that has formed or joined a cluster never comes back here: its membership is in its log.
"""

from typing import final

import msgspec

from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply


class FormCluster(msgspec.Struct, frozen=True):
    """Form a cluster with these voters."""

    voters: list[Peer]


class JoinCluster(msgspec.Struct, frozen=True):
    """Join an existing cluster."""

    cluster_id: str
    node_id: int
    """A member of the cluster, which may be asked for more."""
    first_voters: list[Peer]
    """The first voters of the cluster, if this node is one of them."""


class WaitForPeers(msgspec.Struct, frozen=True):
    """No decision yet."""

    reason: str
    """Reason, for the operator."""


@final
class Bootstrap:
    """One fresh node's view of its peers.

    Invariant: `decide` returns `FormCluster` on at most one of the peers while none of them loses
    its directory, for all of them use the same list.
    """

    def __init__(self, own: PeerStatusReply) -> None:
        """Start with this node's own status only."""
        assert own.cluster_id is None, "it has a cluster already"
        self.own = own
        """This node's status."""
        self._heard: dict[int, PeerStatusReply] = {own.peer.node_id: own}
        self._strangers: dict[int, tuple[str, int]] = {}
        self._refusals: dict[int, str] = {}

    def peer_answered(self, status: PeerStatusReply) -> None:
        """Record the status of a peer; the latest one counts."""
        self._heard[status.peer.node_id] = status

    def stranger_answered(self, node_id: int, address: str, found_id: int) -> None:
        """Record that another node answers at the address (HOST:PORT) of a peer."""
        self._strangers[node_id] = (address, found_id)

    def peer_silent(self, node_id: int, *, refusal: str = "") -> None:
        """Record that a peer cannot be reached: its earlier status may be outdated.

        `refusal` is the reason if it answers, and has not proved to be a node of this cluster.
        """
        if node_id != self.own.peer.node_id:
            self._heard.pop(node_id, None)
            self._refusals[node_id] = refusal

    def decide(self) -> FormCluster | JoinCluster | WaitForPeers:
        """Return the decision.

        Raises:
            ConfigError: The peers' lists or clusters contradict each other; one line names them.
        """
        for node_id, (address, found_id) in sorted(self._strangers.items()):
            raise ConfigError(
                f"--peers says that node {node_id} is at {address}, but node {found_id} answers"
                " there; correct the list, or the --node-id of that node"
            )
        members = [status for status in self._statuses() if status.cluster_id is not None]
        if members:
            return self._join(members)
        missing = [node_id for node_id in self.own.peer_ids if node_id not in self._heard]
        if missing:
            refusals = [reason for each in missing if (reason := self._refusals.get(each))]
            return WaitForPeers(
                "a new cluster begins when all of its nodes answer; "
                + (refusals[0] if refusals else _say(missing))
            )
        self._check_lists()
        lowest = min(self.own.peer_ids)
        if lowest != self.own.peer.node_id:
            return WaitForPeers(f"node {lowest} forms the cluster")
        return FormCluster([status.peer for status in self._statuses()])

    def _statuses(self) -> list[PeerStatusReply]:
        return [self._heard[node_id] for node_id in sorted(self._heard)]

    def _join(self, members: list[PeerStatusReply]) -> JoinCluster:
        first = members[0]
        assert first.cluster_id is not None
        for other in members[1:]:
            if other.cluster_id != first.cluster_id:
                raise ConfigError(
                    f"node {first.peer.node_id} belongs to cluster {first.cluster_id} and node"
                    f" {other.peer.node_id} to cluster {other.cluster_id};"
                    " name only nodes of one of them with --peers"
                )
        return JoinCluster(first.cluster_id, first.peer.node_id, first.first_voters)

    def _check_lists(self) -> None:
        for status in self._statuses():
            if status.peer_ids != self.own.peer_ids:
                raise ConfigError(
                    f"node {self.own.peer.node_id} was started with --peers for nodes"
                    f" {_list(self.own.peer_ids)}, node {status.peer.node_id} for nodes"
                    f" {_list(status.peer_ids)}; start all of them with the same"
                )


def _say(missing: list[int]) -> str:
    verb = "does" if len(missing) == 1 else "do"
    noun = "node" if len(missing) == 1 else "nodes"
    return f"{noun} {_list(missing)} {verb} not answer"


def _list(node_ids: list[int]) -> str:
    return ", ".join(map(str, node_ids))
