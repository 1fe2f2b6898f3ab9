"""The SDKs for JavaScript v3 and Java v2, and the last boto3 that spoke the query protocol."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trio

from tests.paths import ROOT
from tests.system.integration.processes import environment
from tests.system.sqs.fronts import running_broker, running_front
from tests.system.sqs_trials.secured import FRONT_OPTIONS, access_key, secured_options
from tests.system.sqs_trials.sqs_connection import AccessKey

HERE: Final = Path(__file__).parent
MODULE: Final = "tests.system.sqs_trials.aioboto3_program"
RULES: Final = (
    "create,delete,alter,describe,send,receive,settle,purge,redrive queue *",
    "create,delete topic *",
)
"""Rules of a user that may use all actions, as in the table of `docs/sqs.md`."""


@pytest.fixture(scope="module", params=["open", "access-keys"])
def variables(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, str]]:
    """Return the environment of a program that uses a front."""
    folder = tmp_path_factory.mktemp("brokers")
    is_secured = request.param == "access-keys"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(folder))
        options = secured_options(folder) if is_secured else []
        with running_broker(folder / "data", *options) as broker:
            key, front_options = AccessKey("any", "any"), ["--no-auth"]
            if is_secured:
                key = trio.run(access_key, folder, broker, RULES)
                front_options = [*FRONT_OPTIONS]
            with running_front(broker, *front_options) as url:
                yield environment(
                    AWS_ENDPOINT_URL=url,
                    AWS_REGION="us-east-1",
                    AWS_DEFAULT_REGION="us-east-1",
                    AWS_ACCESS_KEY_ID=key.key_id,
                    AWS_SECRET_ACCESS_KEY=key.secret,
                    TIDELOG_SQS_ENDPOINT=url,
                )


def run(folder: Path, variables: dict[str, str], *command: str) -> str:
    """Run a program; return its output, which a failure shows."""
    program = shutil.which(command[0])
    if program is None:
        pytest.skip(f"the trial is left out: {command[0]} not found")
    done = subprocess.run(
        [program, *command[1:]],
        cwd=folder,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_sdk_for_javascript(variables: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "javascript"
    shutil.copytree(HERE / "javascript", folder)

    run(folder, variables, "npm", "install", "--no-audit", "--no-fund")
    said = run(folder, variables, "node", "--test")

    assert "# fail 0" in said
    assert "# pass 8" in said


def test_the_sdk_for_java(variables: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "java"
    shutil.copytree(HERE / "java", folder)

    said = run(folder, variables, "mvn", "--quiet", "--batch-mode", "compile", "exec:java")

    assert "all passed" in said


def test_the_example_of_celery(variables: dict[str, str], tmp_path: Path) -> None:
    variables = {**variables, "RESULTS": str(tmp_path / "results"), "PYTHONWARNINGS": "ignore"}
    celery = [sys.executable, "-m", "celery", "--app", "celery_orders", "worker"]
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            celery, cwd=ROOT / "examples", env=variables, stdout=log, stderr=log
        )
    try:
        said = run(ROOT / "examples", variables, sys.executable, "celery_orders.py")
    finally:
        worker.terminate()
        worker.wait()

    charged, shipped, reminded = said.splitlines()
    assert charged == "order 17 is charged after 1 retry"
    assert shipped == "10 packets of 5500 g are shipped"
    assert re.fullmatch(r"the reminder came after ([3-9]|\d\d) s", reminded)


def test_aioboto3_with_a_hundred_tasks(variables: dict[str, str]) -> None:
    pytest.importorskip("aioboto3")

    said = run(Path.cwd(), variables, sys.executable, "-m", MODULE)

    assert said == "1000 messages, each received once\n"


def test_the_last_boto3_with_the_query_protocol(variables: dict[str, str], tmp_path: Path) -> None:
    python = tmp_path / "old" / "bin" / "python"
    run(tmp_path, dict(os.environ), sys.executable, "-m", "venv", "old")
    pip = [str(python), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    run(tmp_path, dict(os.environ), *pip, "boto3==1.28.79", "botocore==1.31.79")

    said = run(tmp_path, variables, str(python), str(HERE / "old_boto3_program.py"))

    assert said == "query\n"
