"""A cluster of this version and an old one, on three real processes: `make versions`."""

import argparse
import logging
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import trio

from tests.paths import ROOT
from tests.system.versions.run import run

_FIRST_WITH_LEVELS: Final = "coordinator/metadata/features.py"
"""A file that the first commit with feature levels added."""


def main() -> int:
    """Run the command line; return the exit status."""
    arguments = parse_arguments(sys.argv[1:])
    # The library's clients warn of the brokers that stop.
    logging.getLogger("tidelog").addHandler(logging.NullHandler())
    commit = git("rev-parse", arguments.old or f"{commit_with_levels()}^")
    with tempfile.TemporaryDirectory(prefix="tidelog-versions-") as made:
        tree, data = Path(made) / "old", Path(made) / "data"
        extract(commit, tree)
        _say(f"the old version is {git('log', '-1', '--format=%h %s', commit)}")
        outcome = trio.run(lambda: run(program_in(tree), data, say=_say))
    _say(
        f"{outcome.acknowledged:,} records acknowledged, {outcome.lost} lost, {outcome.moved} at"
        f" another offset, {outcome.doubled} doubled"
    )
    return 0 if outcome.is_right else 1


def parse_arguments(words: Sequence[str]) -> argparse.Namespace:
    """Return the parsed arguments of a command line, or exit with its errors."""
    parser = argparse.ArgumentParser(prog="python -m tests.system.versions", description=__doc__)
    parser.add_argument(
        "--old", help="commit of the old version; by default the last one without feature levels"
    )
    return parser.parse_args(words)


def commit_with_levels() -> str:
    """Return the first commit with feature levels."""
    found = git("log", "--diff-filter=A", "--format=%H", "--", _FIRST_WITH_LEVELS).split()
    if not found:
        sys.exit(f"no commit added {_FIRST_WITH_LEVELS}: the clone is shallow; fetch all of it")
    return found[-1]


def extract(commit: str, tree: Path) -> None:
    """Extract the files of a commit into a new directory."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, check=True, capture_output=True)
    tree.mkdir()
    packed = tree.with_suffix(".tar")
    packed.write_bytes(archive.stdout)
    with tarfile.open(packed) as opened:
        opened.extractall(tree, filter="tar")


def program_in(tree: Path) -> list[str]:
    """Return the command for a broker from the files of another commit."""
    return ["sh", "-c", 'cd "$0" && exec "$@"', str(tree), sys.executable, "-m", "tidelog"]


def git(*words: str) -> str:
    """Return the output of a command of Git."""
    ran = subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True)
    return ran.stdout.strip()


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
