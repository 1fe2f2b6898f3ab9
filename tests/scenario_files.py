"""Scenario files: commands, each followed by `----` and its expected output."""

import sys
from collections.abc import Callable
from pathlib import Path


def perform(text: str, play: Callable[[str], list[str]]) -> str:
    """Return a scenario with the output that `play` gives for each of its commands."""
    performed: list[str] = []
    is_expected = False
    output: list[str] = []
    for line in text.splitlines():
        if line == "----":
            performed += ["----", *(output or ["(nothing)"])]
            output, is_expected = [], True
        elif not line:
            performed.append("")
            is_expected = False
        elif not is_expected:
            performed.append(line)
            if not line.startswith("#"):
                output += play(line)
    return "\n".join(performed) + "\n"


def rewrite(folder: Path, perform_scenario: Callable[[str], str]) -> None:
    """Rewrite the expected outputs in a folder, and name the files that have changed."""
    for path in sorted(folder.glob("*.txt")):
        text = path.read_text(encoding="utf-8")
        performed = perform_scenario(text)
        if performed != text:
            path.write_text(performed, encoding="utf-8")
            sys.stdout.write(f"{path.name} has changed\n")
