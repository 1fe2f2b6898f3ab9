"""The leader's state of one follower, with the flow control towards it.

Pure: no clock, no I/O.

                    refused, unreachable
          ┌─────────────────────────────────────┐
          ▼                                     │
        PROBE ───── it agrees up to here ──▶ REPLICATE
         ▲ │                                    │
         │ │ what it needs is compacted         │ what it needs is compacted
  failed,│ ▼                                    │
 or late └ SNAPSHOT ◀───────────────────────────┘
             │
             └──── it has the snapshot ───▶ PROBE, and on
"""

from collections import deque
from enum import Enum
from typing import final


class ProgressState(Enum):
    """How the leader sends to a follower."""

    PROBE = "probe"
    """The leader probes for the last matching entry, with one message at a time."""
    REPLICATE = "replicate"
    """The logs agree; messages are sent without waiting, as far as the window allows."""
    SNAPSHOT = "snapshot"
    """A snapshot is on its way to the follower; no entries are sent."""


@final
class Window:
    """Messages with entries that were sent and not answered, oldest first.

    It starts with one message, and grows by one for each answer, so it doubles with each round
    trip. A refusal closes it again. If everything were sent at once, messages that overtake each
    other would be refused and sent again in full, over and over.
    """

    def __init__(self, max_messages: int, max_bytes: int) -> None:
        """Begin empty, open for one message."""
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._open_messages = 1
        self._sent: deque[tuple[int, int]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def is_full(self) -> bool:
        """No more may be sent. Never true of an empty window, however small its limits are."""
        return len(self._sent) >= self._open_messages or self._bytes >= self._max_bytes

    def add(self, last_index: int, size_bytes: int) -> None:
        """Add a message that ends with `last_index`."""
        assert not self.is_full
        self._sent.append((last_index, size_bytes))
        self._bytes += size_bytes

    def free_to(self, index: int) -> None:
        """Remove the messages up to `index`, which were received."""
        while self._sent and self._sent[0][0] <= index:
            self._bytes -= self._sent.popleft()[1]
            self._open_messages = min(self._open_messages + 1, self._max_messages)

    def clear(self) -> None:
        """Remove all messages, which may be lost; open for one message again."""
        self._sent.clear()
        self._open_messages = 1
        self._bytes = 0


@final
class Progress:
    """The leader's view of one follower or learner.

    Invariant: 0 <= match_index < next_index.
    """

    def __init__(self, *, next_index: int, window: Window, now_ticks: int) -> None:
        """Start with a first index to probe; the follower counts as active just now."""
        self.state = ProgressState.PROBE
        self.match_index = 0
        """The follower's disk agrees with the leader up to here. Never falls."""
        self.next_index = next_index
        """The first entry to send next. In REPLICATE everything before it was sent."""
        self.attempt = 1
        """Number of probes so far; an answer to an earlier attempt is late. Without it, each of
        many messages that overtook each other would restart the probe."""
        self.window = window
        self.heard_at_ticks = now_ticks
        """Tick of its last answer."""
        self.is_probe_sent = False
        """In PROBE: the next message waits for an answer, or for the next heartbeat."""
        self.snapshot_index = 0
        """In SNAPSHOT: the snapshot that was sent."""
        self.snapshot_since_ticks = 0
        """In SNAPSHOT: the tick at which it was sent."""
        self.commit_index_sent = 0
        """In REPLICATE: the last commit index sent to it; it may not have arrived."""
        self.read_round = 0
        """The latest round of ReadIndex that it has confirmed."""

    def become_probe(self, next_index: int) -> None:
        """Probe again for the last matching entry, beginning before `next_index`."""
        self.state = ProgressState.PROBE
        self.attempt += 1
        self.next_index = max(next_index, self.match_index + 1)
        self.window.clear()
        self.is_probe_sent = False

    def become_replicate(self) -> None:
        """Send without waiting."""
        self.state = ProgressState.REPLICATE
        self.window.clear()

    def become_snapshot(self, index: int, now_ticks: int) -> None:
        """Wait until the follower has the snapshot that covers `index`."""
        self.state = ProgressState.SNAPSHOT
        self.snapshot_index = index
        self.snapshot_since_ticks = now_ticks
        self.window.clear()

    def received(self, received_index: int, durable_index: int, attempt: int) -> None:
        """Process a reply; replies may be late, duplicate and out of order."""
        self.match_index = max(self.match_index, durable_index)
        self.window.free_to(received_index)
        self.next_index = max(self.next_index, received_index + 1, self.match_index + 1)
        if self.state is ProgressState.PROBE and attempt == self.attempt:
            self.become_replicate()
        elif self.state is ProgressState.SNAPSHOT and received_index >= self.snapshot_index:
            self.become_probe(received_index + 1)

    def refused(self, previous_index: int, next_index: int, attempt: int) -> None:
        """Process the refusal of `previous_index`; `next_index` is the next attempt."""
        if attempt == self.attempt and self.state is not ProgressState.SNAPSHOT:
            self.become_probe(min(next_index, previous_index))
