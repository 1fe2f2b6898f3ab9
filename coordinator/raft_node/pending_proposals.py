"""Commands that were appended to a cluster's log, and the callers that wait for them."""

from typing import final

import trio

from tidelog.coordinator.raft.messages import EntryId


class LostProposalError(Exception):
    """Another leader's entry was committed in the place of the command, which is lost."""


class OvertakenProposalError(Exception):
    """A snapshot replaced the entry; it is unknown whether the command is in it."""


@final
class PendingProposal:
    """An appended entry, and its outcome."""

    def __init__(self, entry_id: EntryId, decoded: object | None = None) -> None:
        """Wait for the entry of this name; `decoded` is its decoded payload."""
        self.entry_id = entry_id
        self.decoded = decoded
        """`None` once it is settled."""
        self._done = trio.Event()
        self._is_committed = False
        self._failure: Exception | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the outcome is known, or will never be known."""
        return self._done.is_set()

    def settle(self, *, is_committed: bool) -> None:
        """Record which entry was committed at this index: this one, or another."""
        self._is_committed = is_committed
        self.decoded = None
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Record that the outcome will never be known."""
        self._failure = error
        self.decoded = None
        self._done.set()

    async def wait(self) -> int:
        """Return the index of the entry when it is committed, and applied here.

        Raises:
            LostProposalError: The entry will never be committed.
            OvertakenProposalError: It is unknown whether the entry was committed.
            LogOfflineError: The outcome is unknown.
        """
        await self._done.wait()
        if self._failure is not None:
            raise self._failure
        if not self._is_committed:
            raise LostProposalError
        return self.entry_id.index


@final
class PendingProposals:
    """The pending proposals of one node.

    Invariant: each of them is above the last entry that was applied here.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._by_index: dict[int, list[PendingProposal]] = {}

    def add(self, entry_id: EntryId, decoded: object | None = None) -> PendingProposal:
        """Wait for an entry that was appended here; `decoded` is its decoded payload."""
        waiting = PendingProposal(entry_id, decoded)
        self._by_index.setdefault(entry_id.index, []).append(waiting)
        return waiting

    def decoded(self, entry_id: EntryId) -> object | None:
        """Return the decoded payload of this very entry, if it was proposed with one here."""
        for waiting in self._by_index.get(entry_id.index, ()):
            if waiting.entry_id == entry_id:
                return waiting.decoded
        return None

    def applied(self, entry_id: EntryId) -> None:
        """Settle the proposals at the index of this entry, as committed or lost."""
        for waiting in self._by_index.pop(entry_id.index, ()):
            waiting.settle(is_committed=waiting.entry_id == entry_id)

    def overtaken(self, index: int) -> None:
        """Fail the proposals up to this index, because a snapshot replaced their entries."""
        for known in [known for known in self._by_index if known <= index]:
            for waiting in self._by_index.pop(known):
                waiting.fail(OvertakenProposalError())

    def fail(self, error: Exception) -> None:
        """Fail all proposals: their outcome will never be known."""
        by_index, self._by_index = self._by_index, {}
        for group in by_index.values():
            for waiting in group:
                waiting.fail(error)
