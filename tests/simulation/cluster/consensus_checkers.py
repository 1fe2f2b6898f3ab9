"""Checkers of consensus: one log, and one state that follows from it."""

from collections.abc import Mapping
from typing import final

import pytest

from tests.simulation.cluster.cluster_history import Applied, Elected, NodeChecker, Voted


@pytest.mark.invariant("I68")
@final
class ElectionSafety(NodeChecker):
    """A term has one leader at most (Raft: Election Safety)."""

    def __init__(self) -> None:
        """Start without leaders."""
        self._leaders: dict[int, int] = {}

    def elected(self, elected: Elected) -> None:
        """See `NodeChecker`."""
        known = self._leaders.setdefault(elected.term, elected.node_id)
        if known != elected.node_id:
            self.fail(f"nodes {known} and {elected.node_id} both lead term {elected.term}")


@pytest.mark.invariant("I68")
@pytest.mark.invariant("I62")
@final
class LeaderCompleteness(NodeChecker):
    """A new leader has every entry that was ever committed in earlier terms.

    Definition: when a node begins to lead a term, its log has the last entry that any node had
    applied in an earlier term by then. By log matching it then has the entries before; their
    contents are compared by `StateMachineSafety`. In a later term more may be committed already,
    including entries of earlier terms, because a candidate may learn late that it won (seed
    7400065).
    """

    def __init__(self) -> None:
        """Start without entries."""
        self._last: dict[int, tuple[int, int]] = {}
        """By the term of the applying node: index and term of the last entry."""

    def applied(self, applied: Applied) -> None:
        """See `NodeChecker`."""
        entry = (applied.index, applied.term)
        self._last[applied.node_term] = max(entry, self._last.get(applied.node_term, entry))

    def elected(self, elected: Elected) -> None:
        """See `NodeChecker`."""
        earlier = [entry for term, entry in self._last.items() if term < elected.term]
        index, term = max(earlier, default=(0, 0))
        if index and not elected.has_entry(index, term):
            self.fail(
                f"node {elected.node_id} leads term {elected.term} without entry {index} of term"
                f" {term}, which was applied"
            )


@pytest.mark.invariant("I68")
@final
class StateMachineSafety(NodeChecker):
    """No two nodes apply different entries at one index."""

    def __init__(self) -> None:
        """Start without entries."""
        self._entries: dict[int, tuple[int, bytes]] = {}

    def applied(self, applied: Applied) -> None:
        """See `NodeChecker`."""
        entry = (applied.term, applied.content)
        known = self._entries.setdefault(applied.index, entry)
        if known != entry:
            self.fail(
                f"entry {applied.index} was {_short(known)}, and node {applied.node_id} applies"
                f" {_short(entry)}"
            )

    def restored(self, node_id: int, index: int, term: int) -> None:
        """See `NodeChecker`."""
        known = self._entries.get(index)
        if known is not None and known[0] != term:
            self.fail(
                f"entry {index} is of term {known[0]}, but node {node_id} has a snapshot that"
                f" ends with an entry of term {term}"
            )


@final
class AppliedInOrder(NodeChecker):
    """A process applies each entry once, in order, from its initial state on."""

    def __init__(self) -> None:
        """Start without processes."""
        self._last: dict[int, int] = {}

    def began(self, node_id: int, applied_index: int) -> None:
        """See `NodeChecker`."""
        self._last[node_id] = applied_index

    def restored(self, node_id: int, index: int, term: int) -> None:
        """See `NodeChecker`."""
        del term
        if index <= self._last[node_id]:
            self.fail(f"node {node_id} goes back from entry {self._last[node_id]} to {index}")
        self._last[node_id] = index

    def applied(self, applied: Applied) -> None:
        """See `NodeChecker`."""
        last = self._last[applied.node_id]
        if applied.index != last + 1:
            self.fail(f"node {applied.node_id} applies entry {applied.index} behind {last}")
        self._last[applied.node_id] = applied.index


@pytest.mark.invariant("I66")
@final
class TermNeverFalls(NodeChecker):
    """A node never sends a message in an earlier term than before, whatever faults hit it.

    The term is on its disk before the first message in it.
    """

    def __init__(self) -> None:
        """Start without terms."""
        self._terms: dict[str, int] = {}

    def spoke(self, node: str, term: int) -> None:
        """See `NodeChecker`."""
        if term < self._terms.get(node, 0):
            self.fail(f"node {node} sends in term {term}, but has sent in term {self._terms[node]}")
        self._terms[node] = term


@pytest.mark.invariant("I66")
@final
class OneVote(NodeChecker):
    """A node has one vote in each term, whatever faults hit it."""

    def __init__(self) -> None:
        """Start without votes."""
        self._votes: dict[tuple[str, int], str] = {}

    def voted(self, voted: Voted) -> None:
        """See `NodeChecker`."""
        known = self._votes.setdefault((voted.voter, voted.term), voted.candidate)
        if known != voted.candidate:
            self.fail(
                f"node {voted.voter} votes for {known} and for {voted.candidate} in term"
                f" {voted.term}"
            )


@final
class StatesAgree(NodeChecker):
    """The same entries produce the same state on every node, from a snapshot or one by one.

    At the end all nodes have applied all entries.
    """

    def state_seen(self, node_id: int, index: int, state: bytes, *, expected: bytes | None) -> None:
        """See `NodeChecker`."""
        if expected is not None and state != expected:
            self.fail(
                f"the state of node {node_id} differs from that of the entries up to {index}:"
                f" {_difference(state, expected)}"
            )

    def ended(self, states: Mapping[int, tuple[int, bytes]]) -> None:
        """See `NodeChecker`."""
        first_id = min(states)
        for node_id, (index, state) in states.items():
            if (index, state) != states[first_id]:
                self.fail(
                    f"at the end node {first_id} has applied {states[first_id][0]} entries and"
                    f" node {node_id} {index}, or their states differ"
                )


def _short(entry: tuple[int, bytes]) -> str:
    return f"{entry[1][:40]!r} of term {entry[0]}"


def _difference(one: bytes, other: bytes) -> str:
    at = next(
        (at for at, (left, right) in enumerate(zip(one, other, strict=False)) if left != right),
        min(len(one), len(other)),
    )
    return f"{one[max(0, at - 20) : at + 20]!r} is not {other[max(0, at - 20) : at + 20]!r}"
