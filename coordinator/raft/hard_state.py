"""The hard state (term and vote), and the messages that wait until it is durable.

Pure: no clock, no I/O.

Every message belongs to a term. If a node sent one before the term, and the vote in it, is on its
disk, a crash would make it forget. It could then send the opposite to another node (I66). So every
message passes through here, and leaves only when the disk has all promises of the time when it was
written. In a quiet term no message waits.
"""

from typing import final

from tidelog.coordinator.raft.membership import Identity
from tidelog.coordinator.raft.messages import Message
from tidelog.coordinator.raft.ready import HardState


@final
class HardStateGate:
    """The hard state in memory and on disk.

    Invariant: the term never falls; the vote of a term, once given, never changes.
    """

    def __init__(self, durable: HardState) -> None:
        """Start with the hard state on disk."""
        self.term = durable.term
        """The highest term that the node has met."""
        self._current = durable
        self._durable = durable
        self._held: list[tuple[HardState, Message]] = []
        self._write_buffer: list[Message] = []

    @property
    def voted_for(self) -> Identity | None:
        """The candidate that has the node's vote in this term."""
        return self._current.voted_for

    @property
    def is_durable(self) -> bool:
        """Whether the disk has term and vote."""
        return self._durable == self._current

    def advance_term(self, term: int) -> None:
        """Advance to a later term, without a vote yet."""
        assert term > self.term
        self.term = term
        self._current = HardState(term)

    def vote_for(self, candidate: Identity) -> None:
        """Record the vote of this term; a repeated vote for the same candidate changes nothing."""
        assert self._current.voted_for in {None, candidate}, "one vote in a term"
        self._current = HardState(self._current.term, candidate)

    def post(self, message: Message) -> None:
        """Send a message as soon as all promises so far are durable."""
        if self._durable.covers(self._current):
            self._write_buffer.append(message)
        else:
            self._held.append((self._current, message))

    def unsynced(self) -> HardState | None:
        """Return the hard state that the disk lacks, `None` if it has it."""
        return None if self._durable == self._current else self._current

    def synced(self, durable: HardState) -> None:
        """Record the hard state on disk, and release the messages that waited for it."""
        self._durable = durable
        waiting = self._held
        self._held = [item for item in waiting if not durable.covers(item[0])]
        self._write_buffer += [message for needed, message in waiting if durable.covers(needed)]

    def take_messages(self) -> tuple[Message, ...]:
        """Return the messages that may be sent."""
        if not self._write_buffer:
            return ()
        taken = tuple(self._write_buffer)
        self._write_buffer.clear()
        return taken
