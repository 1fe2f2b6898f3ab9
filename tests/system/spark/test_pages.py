"""The programs for Spark on the pages run, and the commands there start a cluster.

`test_tutorial.py` runs those of the tutorial.
"""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.docs.blocks import Block
from tests.system.docs.page_runner import free_ports
from tests.system.docs.site_pages import blocks_in
from tests.system.spark.world import World
from tests.system.spark_trials.waiting import wait_until


def spark_blocks(page: str, language: str) -> list[Block]:
    return [
        block for block in blocks_in(page) if "spark" in block.words and block.language == language
    ]


def run(block: Block, world: World, names: dict[str, object]) -> None:
    text = block.text.replace("127.0.0.1:8433", world.address).replace('"orders"', "topic")
    text = re.sub(r'"checkpoints/(\w+)"', r'f"{checkpoint}/\1"', text)
    exec(compile(text, f"line {block.line}", "exec"), names)


@pytest.mark.parametrize("page", ["README.md", "docs/spark.md"])
def test_the_programs_of_a_page_run(
    page: str, world: World, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    world.create(3)  # Two of them stay empty.
    world.write([b"1", b"2"])
    world.client.admin.create_queue("payments")
    payments = world.client.queue("payments")
    payments.send(b"order 17")
    (message,) = payments.receive(1, wait=5)
    message.delete()
    stream = world.spark.readStream.format("tidelog").options(**world.options())
    names: dict[str, object] = {
        "spark": world.spark,
        "topic": world.topic,
        "checkpoint": str(tmp_path / "checkpoint"),
        "rows": world.load("value binary"),
        "stream": stream.load(),
    }
    try:
        for block in spark_blocks(page, "python"):
            run(block, world, names)
        if page == "docs/spark.md":
            assert names["last_hour"].count() >= 2  # type: ignore[attr-defined]
            assert "receiveCount" in capsys.readouterr().out
            assert len(world.values()) >= 4
    finally:
        for query in world.spark.streams.active:
            query.stop()
        world.client.admin.delete_queue("payments", with_topic=True)


def test_the_commands_of_the_page_start_a_standalone_cluster(tmp_path: Path) -> None:
    (block,) = spark_blocks("docs/spark.md", "sh")
    exports, *commands = block.text.splitlines()
    port = free_ports(45_000 + os.getpid() % 2_000)
    running: list[subprocess.Popen[bytes]] = []
    try:
        for command, said in zip(commands, ("ALIVE", "Successfully registered"), strict=True):
            log = tmp_path / f"{len(running)}.log"
            moved = re.sub(r"\b7077\b", str(port), command)
            with log.open("wb") as output:
                running.append(
                    subprocess.Popen(
                        ["bash", "-c", f"{exports}\nexec {moved}"],
                        stdin=subprocess.DEVNULL,
                        stdout=output,
                        stderr=output,
                        cwd=tmp_path,
                        env={
                            **os.environ,
                            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                            "SPARK_WORKER_DIR": str(tmp_path / "work"),
                        },
                        start_new_session=True,
                    )
                )
            wait_until(lambda log=log, said=said: said in log.read_text("utf-8"), said)  # type: ignore[misc]
    finally:
        for process in running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
