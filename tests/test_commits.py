"""The subjects of commits, by the rules of CONTRIBUTING.md."""

import re
import subprocess
from collections.abc import Iterator

import pytest

from tests.paths import ROOT

SINCE = "2026-11-25T21:45:00Z"
"""Older commits are not checked."""
SUBJECT_MAX = 65

_SUBJECT = re.compile(r"(?P<packages>[a-z0-9_./]+(, [a-z0-9_./]+)*): (?P<verb>\S+)( .*[^.])?")
_NO_IMPERATIVE = re.compile(
    r"(?i)the|a|an|no|not|all|each|any|some|one|two|it|this|that|how|wh(at|o|ere|ich|en)|new"
    r"|(?!bring|feed|need|seed|embed|shred|speed)\w+(ed|ing)"
    r"|(?!pass|process|access|address|discuss|compress|focus|express|guess)\w+s"
)


def complaints(subject: str) -> Iterator[str]:
    """Return what is wrong with the subject of a commit."""
    if len(subject) > SUBJECT_MAX:
        yield f"{len(subject)} characters, the limit is {SUBJECT_MAX}"
    if ";" in subject:
        yield "a clause after a semicolon; say it in the body"
    match = _SUBJECT.fullmatch(subject)
    if match is None:
        yield "not of the form `package: verb object`, without a full stop"
    elif _NO_IMPERATIVE.fullmatch(match["verb"]):
        yield f"{match['verb']!r} is no imperative"


def test_subjects_are_short_and_imperative() -> None:
    listed = subprocess.run(
        ["git", "log", "--no-merges", f"--since={SINCE}", "--format=%s"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()

    findings = [f"{each}: {why}" for each in listed for why in complaints(each)]

    assert not findings, "\n" + "\n".join(findings)


@pytest.mark.parametrize(
    ("subject", "is_good"),
    [
        ("logstore: recover a log with a corrupt segment header", True),
        ("broker, wire: pass frames without a copy", True),
        ("queues: what was served together goes on together", False),
        ("broker: the older session ends", False),
        ("broker: added a test", False),
        ("broker: adds a test", False),
        ("broker: add a test.", False),
        ("broker: add a test; it fails", False),
        ("Add a test", False),
        ("broker: " + "add " + "x" * SUBJECT_MAX, False),
    ],
)
def test_the_rule_knows_a_subject(subject: str, *, is_good: bool) -> None:
    assert (not list(complaints(subject))) == is_good
