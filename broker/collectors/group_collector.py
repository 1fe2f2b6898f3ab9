"""Collector of the metrics of consumer groups, on the active controller.

Shell: asks the leaders of partitions. With very many partitions it asks less often, so that the
questions stay below a hundredth of a core.
"""

from collections.abc import Callable
from typing import Final, Protocol, final

import trio

from tidelog.broker.metrics import catalog
from tidelog.broker.metrics.object_counts import OBJECTS_MAX
from tidelog.broker.queues.supervisor import surviving
from tidelog.coordinator.group_coordinator.admin import GroupLags
from tidelog.wire.metrics.metric import Family, Value, family

_PARTITIONS_PER_S: Final = 500
"""Partitions for each second of the time until the next questions."""
_ASKING_S: Final = 4.0
"""Maximum time in seconds that a page waits for answers; then it has the last ones."""


class Administration(Protocol):
    """The groups of a cluster."""

    @property
    def asked_count(self) -> int:
        """Number of partitions that the last `progress` asked about."""
        ...

    async def progress(self) -> list[GroupLags]:
        """Return the progress of all groups."""
        ...


@final
class GroupCollector:
    """Reads the progress of groups."""

    def __init__(
        self,
        administration: Administration,
        nursery: trio.Nursery,
        *,
        is_controller: Callable[[], bool],
        topic_name: Callable[[bytes], str | None],
    ) -> None:
        """Read the groups of `administration` while `is_controller`; name topics by id.

        Questions run in `nursery`: an answer that comes too late for one page is for the next.
        """
        self._nursery = nursery
        self._administration = administration
        self._is_controller = is_controller
        self._topic_name = topic_name
        self._shown: list[GroupLags] = []
        self._answered_at = float("-inf")
        self._answer: trio.Event | None = None
        """Set when the present question is answered; `None` without one."""
        self.maximum = OBJECTS_MAX
        """Maximum of groups with series, those with settings of an owner first; others have none.
        """

    async def families(self) -> list[Family]:
        """Return the metrics of all groups; of slow answers, the last ones that came."""
        if not self._is_controller():
            self._shown, self._answered_at = [], float("-inf")
            return []
        pause_s = self._administration.asked_count / _PARTITIONS_PER_S
        if self._answer is None and trio.current_time() - self._answered_at >= pause_s:
            self._answer = trio.Event()
            self._nursery.start_soon(self._ask, self._answer)
        if self._answer is not None:
            with trio.move_on_after(_ASKING_S):
                await self._answer.wait()
        return self._families()

    async def _ask(self, answer: trio.Event) -> None:
        """Ask once, however many readers wait, and however long it takes."""
        try:
            with surviving("asking for the progress of groups"):
                found = await self._administration.progress()
                found.sort(key=lambda one: (not one.has_settings, one.group_id))
                if self._is_controller():
                    self._shown = found[: self.maximum]
        finally:
            self._answer, self._answered_at = None, trio.current_time()
            answer.set()

    def _families(self) -> list[Family]:
        records: list[tuple[tuple[str, ...], Value]] = []
        seconds: list[tuple[tuple[str, ...], Value]] = []
        lost: list[tuple[tuple[str, ...], Value]] = []
        shown = self._shown
        for group in shown:
            for topic_id, lag in group.lag_of.items():
                topic = self._topic_name(topic_id)
                if topic is None:
                    continue  # It was deleted.
                labels = (group.group_id, topic)
                if lag.records is not None:
                    records.append((labels, lag.records))
                if lag.time_ms is not None:
                    seconds.append((labels, lag.time_ms / 1000))
                lost.append((labels, lag.lost_records))
        return [
            family(catalog.GROUP_LAG_RECORDS, records),
            family(catalog.GROUP_LAG_SECONDS, seconds),
            family(catalog.GROUP_LOST_RECORDS, lost),
            family(catalog.GROUP_MEMBERS, [((one.group_id,), one.member_count) for one in shown]),
            family(catalog.GROUP_EPOCH, [((one.group_id,), one.epoch) for one in shown]),
        ]
