"""The program of the README runs as printed, in a virtual environment that is not activated."""

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from tests.system.installed import Installation, install_wheel
from tests.system.spark.test_pages import spark_blocks
from tests.system.spark.world import World
from tidelog.spark import prepare_java

OTHER_PYTHON = "#!/bin/sh\necho 'this Python has neither pyspark nor tidelog' >&2\nexit 1\n"
"""The first `python3` on the path, if the environment is not activated."""


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Installation:
    return install_wheel(tmp_path_factory.mktemp("installed"))


def run(installation: Installation, *command: str, **variables: str) -> str:
    """Run a command without the environment on the path; return all that it prints."""
    other = installation.project / "other" / "python3"
    other.parent.mkdir(exist_ok=True)
    other.write_text(OTHER_PYTHON, encoding="utf-8")
    other.chmod(0o755)
    java = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    path = f"{other.parent}:/usr/bin:/bin"
    done = subprocess.run(
        command,
        cwd=installation.project,
        env={"PATH": path, "HOME": str(Path.home()), **java, **variables},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    return f"{done.stdout}exit code {done.returncode}"


def printed(world: World) -> str:
    """Return the program of the README, with the address and the topic of the test."""
    block = spark_blocks("README.md", "python")[0]
    text = block.text.replace("127.0.0.1:8433", world.address).replace('"orders"', '"TOPIC"')
    return text.replace("TOPIC", world.topic)


def test_the_program_of_the_readme_runs_in_an_environment_that_is_not_activated(
    world: World, installation: Installation
) -> None:
    world.create()
    world.write([b"one", b"two"])
    program = installation.write("script.py", printed(world))

    said = run(installation, str(installation.python), program)

    assert said.count(f"|{world.topic}|") == 2, said
    assert said.endswith("exit code 0")


def test_the_same_program_runs_with_spark_submit(world: World, installation: Installation) -> None:
    world.create()
    world.write([b"one", b"two"])
    program = installation.write("submitted.py", printed(world))
    submit = Path(pyspark.__file__).parent / "bin" / "spark-submit"

    said = run(installation, str(submit), program, PYSPARK_PYTHON=str(installation.python))

    assert said.count(f"|{world.topic}|") == 2, said
    assert said.endswith("exit code 0")


def test_a_session_that_the_program_created_before_gets_the_format(
    world: World, installation: Installation
) -> None:
    world.create()
    world.write([b"one", b"two"])
    before = "from pyspark.sql import SparkSession\nSparkSession.builder.getOrCreate()\n"
    program = installation.write("notebook.py", before + printed(world))
    java = {"JAVA_HOME": str(prepare_java(dict(os.environ)))}

    said = run(installation, str(installation.python), program, **java)

    assert said.count(f"|{world.topic}|") == 2, said
    assert said.endswith("exit code 0")
