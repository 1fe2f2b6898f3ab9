"""One trial: three brokers are upgraded one by one, go back, are upgraded again, and get the level.

Writers append with `acks=all` all the time. At the end every acknowledged record must be at the
offset of its acknowledgement, once.
"""

# Reads private state of batches.
# pyright: reportPrivateUsage=false

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Final, final

import pytest
import trio

import tidelog
from tests.paths import ROOT
from tests.system.integration.nodes import Nodes
from tests.system.integration.processes import DEADLINE_S, TIDELOG, environment, run_tidelog
from tests.system.integration.test_old_directories import whole
from tests.system.scenarios import trial
from tests.system.scenarios.trial import Outcome, Scenario, Trial
from tidelog.wire.batch.record_batch import COLUMNAR_COUNT_MIN, FORMAT_COLUMNAR
from tidelog.wire.messages.features import OWN_LEVELS

_PAUSE_S: Final = 0.05
"""Between two calls of a writer: the upgrades matter, not the load."""
_NEWEST: Final = OWN_LEVELS.max_level
_NEEDED: Final = (
    f"the cluster has feature level {_NEWEST}; start node 3 with a version of tidelog that supp"
)
_LONG_BATCHES: Final = "long-batches"
_UNREADABLE: Final = "holds records that this tidelog does not understand: "

Say = Callable[[str], None]


async def run(
    old: Sequence[str], data_dir: Path, *, goes_back: bool = True, say: Say = lambda _: None
) -> Outcome:
    """Run a trial of an old version and this one.

    Args:
        old: The command of the old version, up to `serve`.
        data_dir: For the brokers.
        goes_back: Whether all brokers return to the old version once before the rise.
        say: Gets each step.

    Raises:
        AssertionError: The cluster got the level too early, or not at all.
        trio.TooSlowError: The cluster did not recover.
    """

    async def act(written: Trial) -> None:
        upgrade = _Upgrade(written.nodes, old, say)
        async with trio.open_nursery() as writing:
            writing.start_soon(written.write_on)
            await upgrade.roll(TIDELOG)
            if goes_back:
                await upgrade.roll(old)
                await upgrade.roll(TIDELOG)
            await upgrade.raise_level()
            await upgrade.serve_old_client()
            await upgrade.refuse_old(written.directory(upgrade.last_id))
            writing.cancel_scope.cancel()

    scenario = Scenario("two versions", "", act)
    return await trial.run(scenario, data_dir, Random(1), program=old, pause_s=_PAUSE_S)


@final
class _Upgrade:
    """The steps of an administrator."""

    def __init__(self, nodes: Nodes, old: Sequence[str], say: Say) -> None:
        self._nodes = nodes
        self._old = old
        self._say = say

    async def roll(self, program: Sequence[str]) -> None:
        """Restart all brokers with a version, the controller last."""
        self._nodes.program = program
        left = {*self._nodes.ids}
        async with tidelog.connect(self._nodes.addresses) as client:
            while left:
                controller_id = (await client.admin.describe_cluster()).controller_id
                node_id = min(left - {controller_id} or left)
                left.remove(node_id)
                await self._nodes.stop_and_wait(node_id)
                await self._nodes.start(node_id)
                await whole(client)
                self._say(f"node {node_id} runs the {self._name(program)} version")
                if left or program is self._old:
                    with pytest.raises(tidelog.InvalidRequestError):
                        await client.admin.update_features(1)

    async def raise_level(self) -> None:
        """Raise the level as soon as all nodes have reported that they support it."""
        async with tidelog.connect(self._nodes.addresses) as client:
            while (found := await client.admin.describe_features()).obstacles:  # noqa: ASYNC110  (the last one goes with a heartbeat)
                await trio.sleep(0.1)
            assert found.level == 0, "the level rose by itself"
            result = await run_tidelog(
                *("cluster", "features", "--upgrade", "--yes"), TIDELOG_BROKER=self._nodes.addresses
            )
            assert result.returncode == 0, result.stderr
            assert (await client.admin.describe_features()).level == _NEWEST
        self._say(f"the level is {_NEWEST}")

    async def serve_old_client(self) -> None:
        """Check that a client of the old version reads batches that only the new one knows."""
        values = [b"record %d" % number for number in range(2 * COLUMNAR_COUNT_MIN)]
        async with tidelog.connect(self._nodes.addresses) as client:
            await client.admin.create_topic(_LONG_BATCHES, 1)
            async with client.producer() as producer:
                await producer.send_many(_LONG_BATCHES, values)
            formats = await _formats(client, _LONG_BATCHES)
        assert formats == {FORMAT_COLUMNAR}
        with trio.fail_after(DEADLINE_S):
            read = await trio.run_process(
                [*self._old, "consume", _LONG_BATCHES, "--from-beginning", "--until-end"],
                capture_stdout=True,
                cwd=ROOT,
                env=environment(TIDELOG_BROKER=self._nodes.addresses),
            )
        assert read.stdout.splitlines() == values
        self._say("a client of the old version reads long batches")

    @property
    def last_id(self) -> int:
        """The node that tries the old version after the rise."""
        return self._nodes.ids[-1]

    async def refuse_old(self, directory: Path) -> None:
        """Check that the old version ends with the reason, also without data; restart the new one.

        `directory` is that of the last node.
        """
        node_id = self.last_id
        await self._nodes.stop_and_wait(node_id)
        self._nodes.program = self._old
        said = await self._nodes.refused(node_id)
        assert said.startswith("error: ")
        assert any(each in said for each in (_UNREADABLE, _NEEDED)), said
        kept = directory.with_suffix(".kept")
        shutil.move(directory, kept)
        empty = await self._nodes.refused(node_id)
        assert _NEEDED in empty, empty
        for each in (said, empty):
            self._say(f"node {node_id} with the old version ended: {each}")
        shutil.rmtree(directory)
        shutil.move(kept, directory)
        self._nodes.program = TIDELOG
        await self._nodes.start(node_id)

    def _name(self, program: Sequence[str]) -> str:
        return "old" if program is self._old else "new"


async def _formats(client: tidelog.Client, topic: str) -> set[int]:
    """Return the format versions of the batches of a topic."""
    async with client.consumer(topic, auto_offset_reset="earliest") as consumer:
        ends = await consumer.end_offsets()
        return {batch._header.format_version async for batch in consumer.batches(ends)}
