"""Test with brokers that report no feature levels; `make versions` runs a real old version."""

from pathlib import Path

import trio

from tests.system.integration.processes import DEADLINE_S
from tests.system.versions.old_node import OLD_NODE
from tests.system.versions.run import run
from tidelog.wire.messages.features import OWN_LEVELS


async def test_a_cluster_is_upgraded_and_loses_nothing(tmp_path: Path) -> None:
    said: list[str] = []

    with trio.fail_after(DEADLINE_S):
        outcome = await run(OLD_NODE, tmp_path, goes_back=False, say=said.append)

    assert outcome.is_right, outcome
    assert said[-4] == f"the level is {OWN_LEVELS.max_level}"
