"""Records column by column, whether they come from one batch or were put together.

Pure: declarations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, final

from wire.record_batch import Headers


class RecordColumns(Protocol):
    """Records of one partition; all columns are equally long. A `RecordBatch` is one."""

    @property
    def topic(self) -> str:
        """The name of their topic."""
        ...

    @property
    def partition(self) -> int:
        """The number of their partition."""
        ...

    @property
    def has_append_time(self) -> bool:
        """Whether a broker gave them their times."""
        ...

    @property
    def offsets(self) -> Sequence[int]:
        """Ascending."""
        ...

    @property
    def timestamps_ms(self) -> Sequence[int]:
        """Unix time in milliseconds."""
        ...

    @property
    def keys(self) -> Sequence[bytes | None]:
        """The key of each."""
        ...

    @property
    def values(self) -> Sequence[bytes | None]:
        """The value of each."""
        ...

    @property
    def headers(self) -> Sequence[Headers]:
        """The headers of each."""
        ...

    def __len__(self) -> int:
        """Return how many there are."""
        ...


@final
@dataclass(frozen=True, slots=True)
class GivenRecords:
    """Records whose columns are there already."""

    topic: str
    partition: int
    has_append_time: bool
    offsets: Sequence[int]
    timestamps_ms: Sequence[int]
    keys: Sequence[bytes | None]
    values: Sequence[bytes | None]
    headers: Sequence[Headers]

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.offsets)
