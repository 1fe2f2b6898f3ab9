"""Tests of the schedule: it follows from a seed, and its victims and directions are correct."""

from itertools import islice
from random import Random

from tests.system.netns.network import CLIENTS
from tests.system.netns.plan import Fault, FaultKind, Roles, Victim, directions, faults, victims

NODES = (1, 2, 3)


def a_fault(kind: FaultKind, victim: Victim, *, is_hidden_from_clients: bool = False) -> Fault:
    return Fault(
        after_s=1.0,
        duration_s=1.0,
        kind=kind,
        victim=victim,
        partition=4,
        is_hidden_from_clients=is_hidden_from_clients,
        order=NODES,
        waits=False,
    )


def test_every_pair_of_fault_and_victim_comes_before_any_repeats() -> None:
    planned = list(islice(faults(Random("7"), NODES), 50))
    every = {(kind, victim) for kind in FaultKind for victim in Victim}

    assert {(fault.kind, fault.victim) for fault in planned[:25]} == every
    assert {(fault.kind, fault.victim) for fault in planned[25:]} == every


def test_a_seed_gives_the_same_faults_again() -> None:
    assert list(islice(faults(Random("7"), NODES), 30)) == list(
        islice(faults(Random("7"), NODES), 30)
    )


def test_victims_have_the_named_role() -> None:
    roles = Roles(leaders=(1, 3, 2), controller=2)

    hit = {victim: victims(a_fault(FaultKind.KILL, victim), roles) for victim in Victim}

    assert hit == {
        Victim.LEADER: [3],
        Victim.FOLLOWER: [1],
        Victim.CONTROLLER: [2],
        Victim.MINORITY: [3],
        Victim.MAJORITY: [1, 2],
    }


def test_without_known_roles_a_fault_still_has_a_victim() -> None:
    for victim in Victim:
        assert victims(a_fault(FaultKind.KILL, victim), Roles())


def test_a_cut_is_of_one_direction_or_both() -> None:
    lost = {
        kind: set(directions(a_fault(kind, Victim.LEADER), [1]))
        for kind in (FaultKind.CUT, FaultKind.CUT_FROM_HIM, FaultKind.CUT_TO_HIM)
    }

    assert lost == {
        FaultKind.CUT: {(1, 2), (2, 1), (1, 3), (3, 1)},
        FaultKind.CUT_FROM_HIM: {(1, 2), (1, 3)},
        FaultKind.CUT_TO_HIM: {(2, 1), (3, 1)},
    }


def test_clients_may_be_cut_off_too() -> None:
    fault = a_fault(FaultKind.CUT_FROM_HIM, Victim.LEADER, is_hidden_from_clients=True)

    assert set(directions(fault, [1])) == {(1, CLIENTS), (1, 2), (1, 3)}


def test_members_of_a_cut_off_majority_lose_each_other() -> None:
    lost = set(directions(a_fault(FaultKind.CUT, Victim.MAJORITY), [1, 2]))

    assert {(1, 2), (2, 1)} <= lost
    assert len(lost) == 6
