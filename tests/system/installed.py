"""The built wheel in a virtual environment of its own, beside a user's project with our names.

The environment holds the wheel alone. The wheel's dependencies come from the environment that
runs the tests, later on the path. With `TIDELOG_TEST_PYTHON`, the environment is of that
interpreter and has the dependencies installed.
"""

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

from tests.paths import ROOT

USERS_OWN = ("client.py", "wire.py", "broker/__init__.py", "logstore/__init__.py", "isr.py")
"""Modules of the user's project, each with the name of one of our rooms."""


@dataclass(frozen=True, slots=True)
class Installation:
    """An environment with the wheel, and the directory of a user's project."""

    python: Path
    project: Path
    wheel: Path

    def run(self, *arguments: str, **variables: str) -> str:
        """Run Python in the user's project; return its output."""
        done = subprocess.run(
            [str(self.python), *arguments],
            cwd=self.project,
            env={"PATH": f"{self.python.parent}:{os.environ['PATH']}", **variables},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def write(self, name: str, text: str) -> str:
        """Write a program into the user's project; return its name."""
        (self.project / name).write_text(text, encoding="utf-8")
        return name


def build(target: str, source: Path, folder: Path) -> Path:
    """Build the wheel or the source distribution (`sdist`) of a source tree; return its file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory"]
    subprocess.run([*command, str(folder)], cwd=source, capture_output=True, check=True)
    (built,) = folder.iterdir()
    return built


def install_wheel(folder: Path) -> Installation:
    """Build the wheel, install it into a fresh environment, and write a user's project."""
    wheel = build("wheel", ROOT, folder / "wheel")
    home = folder / "environment"
    python = home / "bin" / "python"
    other = os.environ.get("TIDELOG_TEST_PYTHON")
    if other:
        _run(other, "-m", "venv", str(home))
        _run(str(python), "-m", "pip", "install", "--quiet", str(wheel))
    else:
        venv.create(home, with_pip=False, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
        _run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel))
        (site,) = home.glob("lib/python*/site-packages")
        own = sysconfig.get_path("purelib")
        (site / "dependencies.pth").write_text(own + "\n", encoding="utf-8")
    project = folder / "project"
    for own in USERS_OWN:
        path = project / own
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('OWNER = "user"\n', encoding="utf-8")
    return Installation(python, project, wheel)


def _run(*command: str) -> None:
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
