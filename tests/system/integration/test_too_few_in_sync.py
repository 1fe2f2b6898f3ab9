"""Test of a producer while too few replicas are in sync."""

from pathlib import Path

import trio

import tidelog
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import only_line, run_tidelog


async def test_too_few_in_sync_replicas_are_reported_in_one_line(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery:
        nodes = Nodes(tmp_path, nursery)
        await nodes.start(*nodes.ids)
        async with tidelog.connect(nodes.addresses) as client:
            await client.admin.create_topic("strict", config={"min_insync_replicas": "3"})
            await nodes.kill_and_wait(1)
            while (await client.admin.describe_cluster()).nodes[0].status != "fenced":  # noqa: ASYNC110
                await trio.sleep(0.2)

        result = await run_tidelog(
            *("produce", "strict", "--delivery-timeout", "1"),
            stdin=b"".join(b"%d\n" % number for number in range(1000)),
            TIDELOG_BROKER=nodes.addresses,
        )

        assert result.returncode == 1, result.stdout
        said = only_line(result)
        assert "are not in the log" in said
        assert "2 of 3 replicas are in sync, and 3 must be (min_insync_replicas)" in said
        assert "; 0 of 1,000 records were acknowledged; " in said
        assert "tidelog cluster status" in said
        nursery.cancel_scope.cancel()
