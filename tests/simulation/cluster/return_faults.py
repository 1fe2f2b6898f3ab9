"""Faults that are aimed at replicas that come back, and at leaders that propose them for the ISR.

For a moment other brokers know such a replica's old state, and soon rely on its new one.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from random import Random
from typing import Final, Protocol, final

from tests.simulation.broker.plans import Fault
from tests.simulation.broker.sometimes import Sometimes
from tests.simulation.cluster.cluster_history import ClusterHistory
from tests.simulation.cluster.machines import Machine, Machines
from tests.simulation.cluster.replica_log import Asked
from tidelog.coordinator.metadata.records import BrokerRegistered

_AIM_S = 10.0
"""Seconds that a fault waits for its moment."""
_LET_IN_S = 2.0
"""Seconds, about, from the registration of a broker until it may lead and join an ISR."""
_STRIKES: Final = ("stall joiner", "crash joiner", "pause joiner", "kill leader", "delay leader")


class Injector(Protocol):
    """Faults of any machine; see `tests.simulation.cluster.faults.FaultInjector`."""

    def later(self, seconds: float, heal: Callable[[], None]) -> None:
        """Heal after a delay, and at the end in any case, but once."""
        ...

    def crash_within(self, machine: Machine, seconds: float, dice: float) -> None:
        """Crash a machine soon, unless another process runs by then."""
        ...

    def kill_within(self, machine: Machine, seconds: float, *, down_s: float) -> None:
        """Kill a process soon, and restart it after others have taken over."""
        ...

    def stall_disk(self, machine: Machine, seconds: float) -> None:
        """Stall all calls to a disk for so long."""
        ...

    def part(self, machine: Machine, others: Sequence[Machine], seconds: float) -> None:
        """Drop all packets between a machine and others for a while."""
        ...


@final
class ReturnFaults:
    """Injects faults at returning replicas."""

    def __init__(
        self,
        injector: Injector,
        machines: Machines,
        cluster_history: ClusterHistory,
        *,
        sometimes: Sometimes,
    ) -> None:
        """Strike by means of `injector`."""
        self._injector = injector
        self._machines = machines
        self._cluster_history = cluster_history
        self._sometimes = sometimes
        self._join_aims: list[Fault] = []
        self._return_aims: list[tuple[int | None, Fault]] = []
        """Each with the node that it waits for, or `None` for any."""
        cluster_history.on_asked.append(self._asked)
        cluster_history.on_committed.append(self._committed)
        self.effects: Final[Mapping[str, Callable[[Fault], None]]] = {
            "strike_on_join": partial(self._aim, self._join_aims),
            "part_on_return": lambda fault: self.part_on_return(None, fault),
        }
        """Injector of each kind."""

    def end(self) -> None:
        """Cancel all pending faults."""
        self._join_aims.clear()
        self._return_aims.clear()

    def part_on_return(self, node_id: int | None, fault: Fault) -> None:
        """Cut a node, or any, off from the leaders of its partitions when it registers again."""
        aim = (node_id, fault)
        self._return_aims.append(aim)

        def cancel() -> None:
            if aim in self._return_aims:
                self._return_aims.remove(aim)

        self._injector.later(2 * _AIM_S, cancel)

    def _aim(self, aims: list[Fault], fault: Fault) -> None:
        def cancel() -> None:
            if fault in aims:
                aims.remove(fault)

        aims.append(fault)
        self._injector.later(_AIM_S, cancel)

    def _asked(self, asked: Asked) -> None:
        """Strike while a leader's ISR change is in flight.

        The leader waits for the decision, and the joining replica must still catch up.
        """
        if not (asked.joining and self._join_aims):
            return
        fault = self._join_aims.pop()
        random = Random(fault.dice)
        strike = random.choice(_STRIKES)
        self._sometimes.reached(f"join: {strike}")
        leader, joiner = self._machine(asked.node_id), self._machine(asked.joining[0])
        soon_s = 10 ** random.uniform(-4, -1)
        if strike == "stall joiner":
            self._injector.stall_disk(joiner, fault.duration)
        elif strike == "pause joiner":
            self._injector.later(fault.duration, joiner.node.pause(fault.duration))
        elif strike == "delay leader":
            decides = self._machines.leader()
            if decides not in (None, leader):
                self._injector.part(leader, [decides], 2 * fault.duration)
        elif strike == "kill leader":
            self._injector.kill_within(leader, soon_s, down_s=min(fault.duration, 3.0))
        else:
            self._injector.crash_within(joiner, soon_s, fault.dice)

    def _committed(self, entry: Sequence[object]) -> None:
        for record in entry:
            if isinstance(record, BrokerRegistered):
                self._returned(record.broker.node_id)

    def _returned(self, node_id: int) -> None:
        """Isolate a node that registers again; all nodes have registered before the first fault."""
        aim = next((aim for aim in self._return_aims if aim[0] in (None, node_id)), None)
        if aim is None:
            return
        self._return_aims.remove(aim)
        _, fault = aim
        decides, returned = self._machines.leader(), self._machine(node_id)
        leaders = [
            machine
            for machine in self._machines.all
            if machine.node_id in self._leaders_of(node_id) and machine not in (decides, returned)
        ]
        if leaders:
            self._sometimes.reached("parted on return")
            self._injector.part(returned, leaders, _LET_IN_S + fault.duration)

    def _leaders_of(self, node_id: int) -> set[int]:
        """Return the leaders of the partitions of which a node has replicas."""
        state = self._cluster_history.image.state
        return {
            partition.leader
            for topic in state.catalog.topics
            for partition in state.partitions(topic.topic_id)
            if node_id in partition.replicas and partition.leader is not None
        }

    def _machine(self, node_id: int) -> Machine:
        return next(machine for machine in self._machines.all if machine.node_id == node_id)
