"""Buffer of audit records that wait to be written, in bounded memory.

Pure: no clock, no I/O.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from typing import Final, final

BUFFER_BYTES_MAX: Final = 4 << 20
_ENTRY_BYTES: Final = 200
"""Memory of an entry beside its bytes."""


@final
@dataclass(eq=False, slots=True)
class BufferedRecord:
    """A record that is not written yet."""

    data: bytes
    key: bytes
    """Text of the principal."""
    on_written: Callable[[], None] | None = None
    is_taken: bool = False
    """Whether a write of it has begun, whose outcome may be unknown."""

    @property
    def cost(self) -> int:
        """Bytes of memory that it counts for."""
        return len(self.data) + len(self.key) + _ENTRY_BYTES


@final
class AuditBuffer:
    """Records in the order of their arrival.

    Invariant: `used_bytes` is the sum of their costs, and not above the maximum.
    """

    def __init__(self, bytes_max: int = BUFFER_BYTES_MAX) -> None:
        """Hold at most `bytes_max` bytes."""
        self._bytes_max = bytes_max
        self._records: deque[BufferedRecord] = deque()
        self.used_bytes = 0
        self.lost = 0
        """Records that did not fit, or that the topic refused; it never falls."""
        self.written = 0
        """Records that are written; it never falls."""

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._records)

    def has_room(self, record: BufferedRecord) -> bool:
        """Return whether a record fits."""
        return self.used_bytes + record.cost <= self._bytes_max

    def put(self, record: BufferedRecord) -> bool:
        """Add a record; return whether it fits. Count it as lost if it does not."""
        if not self.has_room(record):
            self.lost += 1
            return False
        self._records.append(record)
        self.used_bytes += record.cost
        return True

    def withdraw(self, record: BufferedRecord) -> bool:
        """Remove a record of which no write has begun; return whether it was removed."""
        if record.is_taken or record not in self._records:
            return False
        self._records.remove(record)
        self.used_bytes -= record.cost
        return True

    def take(self, *, count_max: int, bytes_max: int) -> list[BufferedRecord]:
        """Return the oldest records for one write, at least one; they stay until `drop`."""
        taken: list[BufferedRecord] = []
        total = 0
        for record in islice(self._records, count_max):
            total += len(record.data)
            if taken and total > bytes_max:
                break
            record.is_taken = True
            taken.append(record)
        return taken

    def drop(self, count: int, *, is_written: bool) -> None:
        """Remove the oldest records: they are written, or lost for good."""
        for _ in range(count):
            record = self._records.popleft()
            self.used_bytes -= record.cost
            if is_written:
                self.written += 1
                if record.on_written is not None:
                    record.on_written()
            else:
                self.lost += 1
