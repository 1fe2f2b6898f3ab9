"""The commands of make on the pages: simulations run for a second, the others are parsed.

`make -n` prints the command that a target runs. A program of this repository in it must accept its
arguments. A benchmark, a trial on real machines or a search for mutations takes minutes, so a block
with them is marked `dry`.
"""

import os
import re
import shlex
import subprocess
import sys
from importlib import import_module
from typing import Final

import pytest

from tests.paths import ROOT
from tests.simulation import __main__ as simulation
from tests.system.docs.site_pages import blocks_in, site_pages
from tools.docs_site.links import INCLUDED

MODULES: Final = ("bench", "bench.peers", "tests.fuzz", "tests.simulation", "tests.system.")
_PROGRAM: Final = re.compile(r"python -m (\S+)((?: .*)?)$", re.MULTILINE)
_REMARK: Final = re.compile(r" +# .*$")
_SHORT: Final = {
    "--seed": ("--seconds", "1", "--quiet"),
    "--plan": ("--quiet",),
    "--seeds": ("--seeds", "1", "--seconds", "1", "--workers", "1"),
    "--budget": ("--seeds", "1", "--seconds", "1", "--workers", "1"),
}
"""Arguments that make a simulation short, by the argument that the page gives."""


def commands(*, is_dry: bool) -> list[str]:
    """Return the commands of make on all pages."""
    return sorted(
        {
            _REMARK.sub("", line)
            for page in site_pages()
            for block in blocks_in(page)
            if block.is_make and ("dry" in block.words) == is_dry
            for line in block.text.splitlines()
        }
    )


def programs(command: str) -> list[tuple[str, list[str]]]:
    """Return the modules that a command of make runs, with their arguments."""
    made = subprocess.run(
        [*shlex.split(command), "-n", "-o", ".venv/installed-dev", "-o", ".venv/installed-peers"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        # Without the variables of the make that runs this test, such as ARGS.
        env={name: os.environ[name] for name in ("HOME", "PATH") if name in os.environ},
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout.strip(), f"{command} does nothing"
    printed = made.stdout.replace("\\\n", " ")
    return [(name, shlex.split(words)) for name, words in _PROGRAM.findall(printed)]


@pytest.mark.parametrize("command", commands(is_dry=True))
def test_a_long_command_is_accepted(command: str) -> None:
    for name, words in programs(command):
        if name.startswith(MODULES):
            import_module(f"{name}.__main__").parse_arguments(words)


@pytest.mark.parametrize("command", commands(is_dry=False))
def test_a_simulation_runs(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ((_, words),) = programs(command)
    plan = next((ROOT / "tests" / "simulation" / words[0] / "kept_plans").glob("*.json"), None)
    words = [str(plan) if word == "FILE" else word for word in words]
    short = next(arguments for word, arguments in _SHORT.items() if word in words)

    monkeypatch.setattr(sys, "argv", ["simulation", *words, *short])

    status = simulation.main()

    assert status == 0, capsys.readouterr().out


def test_pages_outside_of_docs_are_part_of_the_site() -> None:
    assert set(INCLUDED) <= set(site_pages())
