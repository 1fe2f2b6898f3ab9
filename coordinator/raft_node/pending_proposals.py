"""Commands that were appended to a cluster's log, and the callers that wait for them."""

from collections.abc import Callable
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
        self.is_settled = False
        """Whether the outcome is known, or will never be known."""
        self.tell: Callable[[], None] | None = None
        """Is called once it is settled, as soon as the node has applied all that is committed. It
        must not raise."""
        self._done: trio.Event | None = None
        """Created by a task that waits."""
        self._failure: Exception | None = None

    def settle(self, failure: Exception | None = None) -> None:
        """Record that the entry was committed, or why it was not or will never be known to be."""
        self.is_settled = True
        self.decoded = None
        self._failure = failure
        if self._done is not None:
            self._done.set()

    async def wait(self) -> int:
        """Return the index of the entry when it is committed, and applied here.

        Errors as in `require_committed`.
        """
        await self.wait_settled()
        self.require_committed()
        return self.entry_id.index

    async def wait_settled(self) -> None:
        """Wait until it is settled."""
        if self.is_settled:
            await trio.lowlevel.checkpoint()
            return
        if self._done is None:
            self._done = trio.Event()
        await self._done.wait()

    def require_committed(self) -> None:
        """Check that a settled entry was committed.

        Raises:
            LostProposalError: The entry will never be committed.
            OvertakenProposalError: It is unknown whether the entry was committed.
            LogOfflineError: The outcome is unknown.
        """
        if self._failure is not None:
            raise self._failure


@final
class PendingProposals:
    """The pending proposals of one node.

    Invariant: each of them is above the last entry that was applied here.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._by_index: dict[int, list[PendingProposal]] = {}
        self.untold: list[Callable[[], None]] = []
        """Functions to call for settled proposals."""

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
            is_committed = waiting.entry_id == entry_id
            self._settle(waiting, None if is_committed else LostProposalError())

    def overtaken(self, index: int) -> None:
        """Fail the proposals up to this index, because a snapshot replaced their entries."""
        for known in [known for known in self._by_index if known <= index]:
            for waiting in self._by_index.pop(known):
                self._settle(waiting, OvertakenProposalError())

    def fail(self, error: Exception) -> None:
        """Fail all proposals: their outcome will never be known."""
        by_index, self._by_index = self._by_index, {}
        for group in by_index.values():
            for waiting in group:
                self._settle(waiting, error)

    def _settle(self, waiting: PendingProposal, failure: Exception | None) -> None:
        waiting.settle(failure)
        if waiting.tell is not None:
            self.untold.append(waiting.tell)

    def tell(self) -> None:
        """Call the functions of settled proposals, also of those that are settled meanwhile."""
        while self.untold:
            self.untold.pop(0)()
