"""Files for installations: the systemd unit, the Dockerfile and the compose file of `deploy/`."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.paths import ROOT
from tidelog.broker.config.broker_config import FIELDS, resolve_config
from tidelog.cli.main import run

DEPLOY = ROOT / "deploy"
UNIT = DEPLOY / "tidelog.service"


def exec_start() -> list[str]:
    """Return the command of the unit."""
    (line,) = re.findall(r"^ExecStart=(.*)$", UNIT.read_text(encoding="utf-8"), re.MULTILINE)
    return shlex.split(line)


@pytest.mark.parametrize("name", ["Dockerfile", "compose.yaml"])
def test_each_variable_is_a_setting(name: str) -> None:
    text = (DEPLOY / name).read_text(encoding="utf-8")
    pairs = re.findall(r'(TIDELOG_[A-Z_]+)[=:] ?"?([^"\s]+)"?', text)
    names = {variable.removeprefix("TIDELOG_").lower() for variable, _ in pairs}

    resolve_config(file=None, environment=dict(pairs), flags={})

    assert names
    assert names <= set(FIELDS)


def test_the_image_has_what_tls_jwt_and_encryption_need() -> None:
    assert "[security]" in (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def test_the_brokers_of_the_compose_file_are_its_peers() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    (peers,) = re.findall(r"TIDELOG_PEERS: (\S+)", text)
    advertised = re.findall(r"TIDELOG_ADVERTISED: (\S+)", text)
    numbers = re.findall(r'TIDELOG_NODE_ID: "(\d+)"', text)

    assert peers == ",".join(
        f"{number}={address}" for number, address in zip(numbers, advertised, strict=True)
    )


def test_the_command_of_the_unit_is_understood(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tidelog.toml").write_text("max_connections = 100\n", encoding="utf-8")
    _, *arguments = [
        each.replace("/etc/tidelog", str(tmp_path)).replace("/var/lib/tidelog", str(tmp_path))
        for each in exec_start()
    ]

    assert run([*arguments, "--print-config"]) == 0
    assert "max_connections" in capsys.readouterr().out


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="a machine without systemd")
def test_systemd_accepts_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "tidelog"
    program.write_text("#!/bin/sh\n", encoding="utf-8")
    program.chmod(0o755)
    copy = tmp_path / UNIT.name
    text = UNIT.read_text(encoding="utf-8").replace(exec_start()[0], str(program))
    copy.write_text(text, encoding="utf-8")

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(copy)],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert not done.stderr
