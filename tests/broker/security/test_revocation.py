"""Revocations in a cluster of three brokers: all of them end the connections within a second."""

# Reads private state of brokers.
# pyright: reportPrivateUsage=false

from contextlib import AsyncExitStack

import pytest
import trio

from tests.broker.replication.three_brokers import NODES, ThreeBrokers, connected, live
from tests.broker.security.gateways import (
    KEY_ID,
    SCOPE,
    impersonate,
    key_of,
    time_text,
    with_key,
)
from tests.broker.security.logins import (
    change,
    credential,
    login_by_password,
    login_by_token,
    with_alice,
)
from tests.coordinator.raft_clients import until
from tests.simulation.machine.process import Process
from tidelog.coordinator.metadata.commands import Command
from tidelog.coordinator.security.commands import (
    RemoveAccessKey,
    RemoveToken,
    RemoveUser,
    SetUser,
)
from tidelog.wire.errors import ConnectionLostError
from tidelog.wire.messages.metadata import MetadataRequest
from tidelog.wire.protocol import api
from tidelog.wire.transport.rpc import RpcConnection


async def is_served(connection: RpcConnection) -> bool:
    try:
        await connection.ask(api.METADATA, MetadataRequest([]))
    except ConnectionLostError:
        return False
    return True


@pytest.mark.parametrize(
    ("how", "is_token_over", "is_password_over"),
    [("token", True, False), ("password", False, True), ("user", True, True)],
)
def test_a_revocation_at_one_broker_ends_connections_at_all(
    how: str, *, is_token_over: bool, is_password_over: bool
) -> None:
    commands: dict[str, Command] = {
        "token": RemoveToken("0123456789ab"),
        "password": SetUser("alice", credential("another")),
        "user": RemoveUser("alice"),
    }

    async def main(brokers: ThreeBrokers) -> None:
        await brokers.serve()
        await with_alice(brokers.brokers[1])
        await until(lambda: all(brokers.state(each).security.tokens for each in NODES))
        done = trio.Event()

        async def run(process: Process) -> None:
            async with AsyncExitStack() as open_:
                found: dict[int, tuple[RpcConnection, RpcConnection]] = {}
                for node_id in NODES:
                    both = [
                        await open_.enter_async_context(connected(process, node_id))
                        for _ in range(2)
                    ]
                    for each in brokers.brokers[node_id]._acceptor.connections:
                        each.is_encrypted = True
                    await login_by_token(both[0])
                    await login_by_password(both[1])
                    found[node_id] = (both[0], both[1])
                await change(brokers.brokers[2], commands[how])
                await trio.sleep(1)
                for by_token, by_password in found.values():
                    assert await is_served(by_token) is not is_token_over
                    assert await is_served(by_password) is not is_password_over
            done.set()

        brokers.world.add_node("client").start(run)
        await done.wait()

    live(7, main)


def test_a_removed_access_key_ends_what_gateways_do_for_its_user_at_all_brokers() -> None:
    async def main(brokers: ThreeBrokers) -> None:
        await brokers.serve()
        await with_key(brokers.brokers[1])
        await until(lambda: all(brokers.state(each).security.access_keys for each in NODES))
        done = trio.Event()

        async def run(process: Process) -> None:
            async with AsyncExitStack() as open_:
                found: list[RpcConnection] = []
                for node_id in NODES:
                    found.append(await open_.enter_async_context(connected(process, node_id)))
                    for each in brokers.brokers[node_id]._acceptor.connections:
                        each.is_encrypted = True
                    now_ms = brokers.brokers[node_id]._env.clock.now_ms()
                    scope = SCOPE._replace(date=time_text(now_ms)[:8])
                    await impersonate(found[-1], key_of("alice", scope=scope), time_ms=now_ms)
                    assert await is_served(found[-1])
                await change(brokers.brokers[2], RemoveAccessKey(KEY_ID))
                await trio.sleep(1)
                assert not any([await is_served(each) for each in found])
            done.set()

        brokers.world.add_node("client").start(run)
        await done.wait()

    live(7, main)
