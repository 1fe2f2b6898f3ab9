"""Changes of rules are answered when they are in force on all brokers."""

import trio

from tests.broker.replication.three_brokers import (
    NODES,
    ThreeBrokers,
    connected_as,
    host_of,
    live,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tidelog.coordinator.metadata.broker_sessions import SESSION_MS
from tidelog.wire.messages.access import AccessRule, AlterAccessReply, AlterAccessRequest
from tidelog.wire.protocol import api

_RULE = AccessRule("user:alice", "topic", "orders", ["read"])


async def alter(brokers: ThreeBrokers, node_id: int) -> tuple[AlterAccessReply, list[int], float]:
    """Add a rule at a broker; return the answer, the brokers with the rule then, and the time."""
    found: list[tuple[AlterAccessReply, list[int], float]] = []

    async def run(process: Process) -> None:
        async with connected_as(9, process, node_id) as client:
            began_at = trio.current_time()
            reply = await client.ask(api.ALTER_ACCESS, AlterAccessRequest([_RULE]))
            knowing = [each for each in brokers.brokers if brokers.state(each).security.grants]
            found.append((reply, knowing, trio.current_time() - began_at))

    brokers.world.add_node("administrator").start(run)
    await until(lambda: bool(found), 60)
    return found[0]


def test_all_live_brokers_have_a_rule_when_it_is_answered() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3), 60)
        follower = next(each for each in NODES if each != brokers.controller())

        reply, knowing, seconds = await alter(brokers, follower)

        assert sorted(knowing) == list(NODES)
        assert reply.unconfirmed_nodes == []
        assert seconds < 1

    live(3, main)


def test_a_broker_without_contact_is_waited_for_until_its_lease_has_run_out() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await until(lambda: brokers.are_live(3), 60)
        controller = brokers.controller()
        cut_off = next(each for each in NODES if each != controller)
        others = [host_of(each) for each in NODES if each != cut_off]
        brokers.world.network.partition([host_of(cut_off)], others)

        reply, knowing, seconds = await alter(brokers, controller)

        assert cut_off not in knowing
        assert reply.unconfirmed_nodes == [cut_off]
        assert seconds > SESSION_MS / 1000
        lifecycle = vars(brokers.brokers[cut_off])["_lifecycle"]
        assert not lifecycle.may_lead()

    live(4, main)
