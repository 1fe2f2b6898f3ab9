"""The outcome of a command.

Pure: declarations.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar, final

from tidelog.coordinator.groups.records import GroupRecord

Reply = TypeVar("Reply")


@final
@dataclass(frozen=True, slots=True)
class GroupOutcome(Generic[Reply]):
    """Records to commit, and the reply that may go out when they are committed.

    A reply without records may rest on records of earlier commands: it waits for those as well.
    """

    records: Sequence[GroupRecord]
    reply: Reply
