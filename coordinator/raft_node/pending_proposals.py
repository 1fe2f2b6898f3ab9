"""Commands that were appended to a cluster's log, and whoever waits for what becomes of them."""

from typing import final

import trio

from tidelog.coordinator.raft.messages import EntryId


class LostProposalError(Exception):
    """Another leader's entry was committed in the place of the command: it will never be."""


class OvertakenProposalError(Exception):
    """A snapshot came in the place of entries; whether the command is in it, nobody can say."""


@final
class PendingProposal:
    """An entry that was appended, and what becomes of it."""

    def __init__(self, entry_id: EntryId, decoded: object | None = None) -> None:
        """Wait for the entry of this name; `decoded` is what its payload says."""
        self.entry_id = entry_id
        self.decoded = decoded
        """`None` as soon as it is settled."""
        self._done = trio.Event()
        self._is_committed = False
        self._failure: Exception | None = None

    @property
    def is_settled(self) -> bool:
        """Whether it is known what became of it, or that nobody will ever tell."""
        return self._done.is_set()

    def settle(self, *, is_committed: bool) -> None:
        """Take note that an entry was committed at this index: this one, or another."""
        self._is_committed = is_committed
        self.decoded = None
        self._done.set()

    def fail(self, error: Exception) -> None:
        """Take note that nobody will ever tell."""
        self._failure = error
        self.decoded = None
        self._done.set()

    async def wait(self) -> int:
        """Return the index of the entry when it is committed, and applied here.

        Raises:
            LostProposalError: It will never be committed.
            OvertakenProposalError: Nobody knows whether it was.
            LogOfflineError: Nobody knows what becomes of it.
        """
        await self._done.wait()
        if self._failure is not None:
            raise self._failure
        if not self._is_committed:
            raise LostProposalError
        return self.entry_id.index


@final
class PendingProposals:
    """All that one node waits for.

    Invariant: none of them is at or below the last entry that was applied here.
    """

    def __init__(self) -> None:
        """Begin with none."""
        self._by_index: dict[int, list[PendingProposal]] = {}

    def add(self, entry_id: EntryId, decoded: object | None = None) -> PendingProposal:
        """Wait for an entry that was appended here; `decoded` is what its payload says."""
        waiting = PendingProposal(entry_id, decoded)
        self._by_index.setdefault(entry_id.index, []).append(waiting)
        return waiting

    def decoded(self, entry_id: EntryId) -> object | None:
        """Return what the payload of this very entry says, if it was proposed with that here."""
        for waiting in self._by_index.get(entry_id.index, ()):
            if waiting.entry_id == entry_id:
                return waiting.decoded
        return None

    def applied(self, entry_id: EntryId) -> None:
        """Tell those who waited for this entry, or for another one in its place."""
        for waiting in self._by_index.pop(entry_id.index, ()):
            waiting.settle(is_committed=waiting.entry_id == entry_id)

    def overtaken(self, index: int) -> None:
        """Tell those who waited for entries up to this one that a snapshot came instead."""
        for known in [known for known in self._by_index if known <= index]:
            for waiting in self._by_index.pop(known):
                waiting.fail(OvertakenProposalError())

    def fail(self, error: Exception) -> None:
        """Tell everybody that nobody will ever know."""
        by_index, self._by_index = self._by_index, {}
        for group in by_index.values():
            for waiting in group:
                waiting.fail(error)
