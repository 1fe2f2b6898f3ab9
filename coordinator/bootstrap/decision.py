"""How nodes that were started with the same list of peers become one cluster, once.

Pure: no clock, no I/O. A node with an empty data directory does not know whether it is one of the
first or comes late to a cluster that was formed without it. So it asks all of its peers:

- One of them belongs to a cluster: then this is the one to join.
- All of them answered, and none belongs to a cluster: then the one with the lowest id forms it,
  with the identities that they told it.
- At the address of one of them somebody else answers: the list is wrong.
- Somebody is silent: wait. Two halves that each form a cluster of their own would both take
  writes under one name, so a cluster begins only when everybody is there.

Whoever has formed or joined a cluster never comes back here: its membership is in its log.
"""

from typing import final

import msgspec

from tidelog.wire.errors import ConfigError
from tidelog.wire.messages.cluster import Peer, PeerStatusReply


class FormCluster(msgspec.Struct, frozen=True):
    """Begin a cluster: it is this node's turn."""

    voters: list[Peer]


class JoinCluster(msgspec.Struct, frozen=True):
    """Take part in a cluster that is there."""

    cluster_id: str
    node_id: int
    """Who belongs to it, and may be asked for more."""
    first_voters: list[Peer]
    """With whom the cluster began, if a node that is one of them needs to know it."""


class WaitForPeers(msgspec.Struct, frozen=True):
    """Nothing can be decided yet."""

    reason: str
    """For the operator."""


@final
class Bootstrap:
    """One fresh node's view of its peers.

    Invariant: `decide` says `FormCluster` on at most one of the peers while none of them loses its
    directory, for all of them go by the same list.
    """

    def __init__(self, own: PeerStatusReply) -> None:
        """Begin with nothing but what this node says of itself."""
        assert own.cluster_id is None, "it has a cluster already"
        self.own = own
        """What this node says of itself."""
        self._heard: dict[int, PeerStatusReply] = {own.peer.node_id: own}
        self._strangers: dict[int, tuple[str, int]] = {}

    def peer_answered(self, status: PeerStatusReply) -> None:
        """Take note of what a peer said; the latest word counts."""
        self._heard[status.peer.node_id] = status

    def stranger_answered(self, node_id: int, address: str, found_id: int) -> None:
        """Take note that at the address of a peer (HOST:PORT) another node answers."""
        self._strangers[node_id] = (address, found_id)

    def peer_silent(self, node_id: int) -> None:
        """Take note that a peer cannot be reached: what it said before may be over."""
        if node_id != self.own.peer.node_id:
            self._heard.pop(node_id, None)

    def decide(self) -> FormCluster | JoinCluster | WaitForPeers:
        """Return what to do now.

        Raises:
            ConfigError: The peers were started with lists, or belong to clusters, that do not go
                together; one line names them.
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
            return WaitForPeers(
                f"a new cluster begins when all of its nodes are there; {_say(missing)}"
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
