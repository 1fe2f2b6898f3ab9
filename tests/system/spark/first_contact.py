"""The program of the README, and a way to run it in an environment that is not activated."""

import os
import subprocess
from pathlib import Path

from tests.system.installed import Installation
from tests.system.spark.test_pages import spark_blocks
from tests.system.spark.world import World

OTHER_PYTHON = "#!/bin/sh\necho 'this Python has neither pyspark nor tidelog' >&2\nexit 1\n"
"""The first `python3` on the path, if the environment is not activated."""


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
