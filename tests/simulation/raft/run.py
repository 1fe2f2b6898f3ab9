"""One run: faults, clients, an operator; then healing, and progress must resume."""

from collections.abc import Callable
from functools import partial
from itertools import count
from random import Random
from typing import final

import pytest

from tests.simulation.checkers.run_history import ViolationError
from tests.simulation.raft.node import RaftNode
from tests.simulation.raft.plans import Fault, Plan
from tests.simulation.raft.world import TICK_MS, World
from tests.simulation.report import RunReport, judged
from tidelog.coordinator.raft.ready import AddLearner, Promote, Remove

TAIL_ELECTIONS = 60
"""Election timeouts after healing within which a command must be committed and applied on all
voters. It takes three or four; a slow network loses a few elections more."""


@final
class _Run:
    def __init__(self, plan: Plan, show: Callable[[str], None] | None) -> None:
        self.world = World(plan, show)
        self._plan = plan
        self._contexts = count()
        self._commands = count()
        self._may_propose = True

    def run(self) -> None:
        world, plan = self.world, self._plan
        for fault in plan.faults:
            world.at(fault.at_ms, partial(self._strike, fault))
        self._propose_for_ever()
        self._read_for_ever()
        self._operate_for_ever()
        world.run_until(plan.duration_ms)
        self._heal()
        self._serve_a_read()
        self._commit_everywhere()
        if plan.has_return:
            self._return_from_a_partition()

    def _propose_for_ever(self) -> None:
        def propose(node: RaftNode) -> None:
            assert node.core is not None
            node.core.propose(b"%d" % next(self._commands))

        if self._may_propose:
            self.world.lead(propose)
        interval_ms = TICK_MS * 5 if self.world.is_healed else self._plan.propose_ms
        self.world.after(interval_ms, self._propose_for_ever)

    def _read_for_ever(self) -> None:
        def read(node: RaftNode) -> None:
            assert node.core is not None
            context = next(self._contexts)
            self.world.checks.ask(context)
            node.core.read(context)

        self.world.lead(read)
        self.world.after(self._plan.read_ms, self._read_for_ever)

    def _operate_for_ever(self) -> None:
        if self.world.damaged:
            self.world.replace_lost()
        self.world.after(TICK_MS * 7, self._operate_for_ever)

    def _strike(self, fault: Fault) -> None:
        self.world.say(f"fault {fault}")
        _FAULTS.get(fault.kind, _arm)(self.world, fault)

    def _heal(self) -> None:
        world = self.world
        world.say("all is healed")
        world.is_healed = True
        for node in world.nodes.values():
            node.paused_until_ms = 0
            node.slow_until_ms = 0
            world.restart(node)
        world.heal_network()

    def _serve_a_read(self) -> None:
        """Check liveness: without any command, a read is served, because a term has its own entry.

        That entry commits all remaining entries of earlier leaders.
        """
        self._may_propose = False
        begun = next(self._contexts)
        self._wait(lambda: self.world.checks.latest_answer > begun, "no read is served")
        self._may_propose = True

    def _commit_everywhere(self) -> None:
        """Check liveness: new entries are committed, and applied by all voters."""
        goal = len(self.world.checks.committed)
        self._wait(lambda: self._is_alive(goal), "nothing is committed everywhere")

    def _wait(self, is_reached: Callable[[], bool], problem: str) -> None:
        world = self.world
        for _ in range(TAIL_ELECTIONS):
            world.run_until(world.now_ms + self._election_ms)
            if is_reached():
                return
        states = "; ".join(
            f"{node.identity} {node.core.role} {node.core.term} {node.core.last}"
            for node in world.nodes.values()
            if node.core is not None
        )
        raise ViolationError("Liveness", f"{problem}: {states}")

    @property
    def _election_ms(self) -> int:
        return self._plan.election_ticks * TICK_MS

    @pytest.mark.invariant("I74")
    def _return_from_a_partition(self) -> None:
        """Check that a node which returns from a partition does not depose a healthy leader."""
        world = self.world
        world.run_until(world.now_ms + 3 * self._election_ms)
        leaders = [node for node in world.nodes.values() if node.is_leader]
        voters = leaders[0].core.membership.voters if leaders and leaders[0].core else ()
        others = [voter for voter in voters if voter != leaders[0].identity]
        if len(others) < 2 or len(leaders) != 1 or world.damaged or leaders[0].core is None:
            return
        term = leaders[0].core.term
        self._may_propose = False  # else its log would lag, and it could win no vote anyway
        away_ms = 4 * self._election_ms
        for other in world.nodes:
            world.block(others[0].node_id, other, away_ms)
            world.block(other, others[0].node_id, away_ms)
        world.run_until(world.now_ms + away_ms + 2 * self._election_ms)
        if not leaders[0].is_leader or leaders[0].core.term != term:
            problem = f"{others[0]} came back, and {leaders[0].identity} lost leadership"
            raise ViolationError("HealthyLeaderStays", problem)

    def _is_alive(self, goal: int) -> bool:
        """Return whether a new entry was committed, and all voters have applied it."""
        world = self.world
        for leader in world.nodes.values():
            if not leader.is_leader or leader.core is None:
                continue
            voters = [world.nodes[voter.node_id] for voter in leader.core.membership.voters]
            applied = [
                node.applied_index
                for node, voter in zip(voters, leader.core.membership.voters, strict=True)
                if node.identity == voter and not world.is_lost(voter.disk_id)
            ]
            return bool(applied) and min(applied) > goal
        return False


def run(
    plan: Plan,
    *,
    show: Callable[[str], None] | None = None,
    shows_steps: bool = False,
    goes_on: bool = False,
) -> RunReport[Plan]:
    """Execute one run, and return its report.

    A failed assertion of the core is a broken promise as well. Each event is shown, and a run ends
    with the first objection, whatever the values of `shows_steps` and `goes_on`.
    """
    del shows_steps, goes_on
    one = _Run(plan, show)
    checker, problem = judged(one.run, asserts=True)
    world = one.world
    if checker is not None:
        world.say(problem)
    return RunReport(
        plan=plan,
        checker=checker,
        problem=problem,
        sometimes=world.sometimes,
        counts={"events": world.event_count, "committed": len(world.checks.committed)},
        simulated_s=world.now_ms / 1000,
        fingerprint=f"{world.event_count} {len(world.checks.committed)} {world.now_ms}",
        objectors=[checker] if checker else [],
    )


def _arm(world: World, fault: Fault) -> None:
    world.arm(fault)


def _leaders(world: World) -> list[RaftNode]:
    return [node for node in world.nodes.values() if node.is_leader]


def _crash(world: World, fault: Fault) -> None:
    world.crash(world.nodes[fault.node], fault.duration_ms)


def _crash_leader(world: World, fault: Fault) -> None:
    for node in _leaders(world):
        world.crash(node, fault.duration_ms)


def _crash_all(world: World, fault: Fault) -> None:
    for node in world.nodes.values():
        world.crash(node, world.dice.uniform(0, fault.duration_ms))


def _partition(world: World, fault: Fault, *, is_one_way: bool = False) -> None:
    for sender in world.nodes:
        for target in world.nodes:
            sides = (fault.mask >> (sender - 1) & 1, fault.mask >> (target - 1) & 1)
            if sides == (0, 1) or (sides == (1, 0) and not is_one_way):
                world.block(sender, target, fault.duration_ms)


def _isolate_leader(world: World, fault: Fault) -> None:
    for node in _leaders(world):
        for other in world.nodes:
            world.block(node.node_id, other, fault.duration_ms)
            world.block(other, node.node_id, fault.duration_ms)


def _pause(world: World, fault: Fault) -> None:
    world.nodes[fault.node].paused_until_ms = int(world.now_ms) + fault.duration_ms


def _pause_leader(world: World, fault: Fault) -> None:
    for node in _leaders(world):
        node.paused_until_ms = int(world.now_ms) + fault.duration_ms


def _slow_disk(world: World, fault: Fault) -> None:
    world.nodes[fault.node].slow_until_ms = int(world.now_ms) + fault.duration_ms


def _damage(world: World, fault: Fault) -> None:
    world.damage(world.nodes[fault.node], fault.duration_ms)


def _damage_and_crash_leader(world: World, fault: Fault) -> None:
    _damage(world, fault)
    _crash_leader(world, fault)


def _transfer(world: World, fault: Fault) -> None:
    def transfer(node: RaftNode) -> None:
        assert node.core is not None
        node.core.transfer_leadership(fault.node)
        world.count("transfer")

    world.lead(transfer)


def _add(world: World, fault: Fault) -> None:
    node = world.nodes[fault.node]
    if not world.is_lost(node.identity.disk_id):
        world.change(AddLearner(node.identity))


def _promote(world: World, fault: Fault) -> None:
    for node in _leaders(world):
        assert node.core is not None
        for learner in node.core.membership.learners:
            world.change(Promote(learner.node_id))
            return
    _add(world, fault)


def _remove(world: World, fault: Fault) -> None:
    world.change(Remove(fault.node))


def _remove_leader(world: World, _: Fault) -> None:
    for node in _leaders(world):
        world.change(Remove(node.node_id))


def _forge(world: World, fault: Fault) -> None:
    world.forge(world.nodes[fault.node], Random(f"{world.plan.seed} {fault.at} {fault.mask}"))


def _repeat(world: World, _: Fault) -> None:
    world.repeat()


def _remove_two(world: World, fault: Fault) -> None:
    for node_id in world.nodes:
        if fault.mask >> (node_id - 1) & 1:
            world.change(Remove(node_id))


_FAULTS: dict[str, Callable[[World, Fault], None]] = {
    "crash": _crash,
    "crash_leader": _crash_leader,
    "crash_all": _crash_all,
    "partition": _partition,
    "one_way": partial(_partition, is_one_way=True),
    "isolate_leader": _isolate_leader,
    "pause": _pause,
    "pause_leader": _pause_leader,
    "slow_disk": _slow_disk,
    "damage": _damage,
    "damage_and_crash_leader": _damage_and_crash_leader,
    "transfer": _transfer,
    "add": _add,
    "promote": _promote,
    "remove": _remove,
    "remove_leader": _remove_leader,
    "remove_two": _remove_two,
    "forge": _forge,
    "repeat": _repeat,
}
"""Faults that strike at their time; the others wait for a moment (`World.is_struck`)."""
