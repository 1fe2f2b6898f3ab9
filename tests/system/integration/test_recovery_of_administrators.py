"""The way back in after a lock-out, in a cluster of three nodes that start together."""

from contextlib import suppress
from pathlib import Path

import pytest
import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import run_tidelog

FIRST = "the first password"
LATER = "the later password"


def written(path: Path, user: str, password: str) -> str:
    """Write a file with an administrator, and return its name."""
    path.touch(0o600)
    path.write_text(f'user = "{user}"\npassword = "{password}"\n', encoding="ascii")
    return str(path)


async def test_an_operator_of_one_machine_gets_back_into_a_cluster(
    tmp_path: Path, nursery: trio.Nursery
) -> None:
    settings = tmp_path / "tidelog.toml"
    settings.write_text(
        'authentication = "required"\nauthorization = "enforce"\naudit = "on"\n', encoding="ascii"
    )
    first = written(tmp_path / "first.toml", "root", FIRST)
    nodes = Nodes(tmp_path, nursery, "--config", str(settings), "--bootstrap-admin", first)
    await nodes.start(1, 2, 3)
    async with tidelog.connect(nodes.addresses, user="root", password=FIRST) as client:
        await client.admin.create_topic("orders")
        # The connection of the removed user may end before the answer arrives.
        with suppress(tidelog.AuthenticationFailedError):
            await client.security.remove_user("root")
    with pytest.raises(tidelog.AuthenticationFailedError):
        async with tidelog.connect(nodes.addresses, user="root", password=FIRST) as client:
            await client.admin.list_topics()

    await nodes.stop_and_wait(2)
    later = written(tmp_path / "later.toml", "ops", LATER)
    done = await run_tidelog(
        *("admin", "recover", "--data-dir", str(tmp_path / "2"), "--admin", later)
    )
    assert done.returncode == 0, done.stderr
    await nodes.start(2)
    await nodes.process(2).wait_event("administrator_recovered")

    async with tidelog.connect(nodes.addresses, user="ops", password=LATER) as client:
        assert "orders" in await client.admin.list_topics()
        async with client.consumer("audit@cluster", auto_offset_reset="earliest") as consumer:
            wanted = ["administrator.create", "administrator.recover"]
            async for record in consumer:
                assert record.value is not None
                if f'"action":"{wanted[0]}"' in record.value.decode():
                    del wanted[0]
                if not wanted:
                    break
    assert not (tmp_path / "2" / "recover-admin").exists()
    assert LATER not in str(nodes.process(2).events)
    nursery.cancel_scope.cancel()
