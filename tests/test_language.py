"""The rules of the style guide in CONTRIBUTING.md that a program can check.

The subject of a sentence is a component, so no pronoun stands for one; words that the field has a
term for are refused; a module is introduced by a noun phrase.
"""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.paths import ROOT

SUFFIXES = {".md", ".py", ".toml", ".yml", ".yaml", ".txt", ""}
THIS = "tests/test_language.py"

PRONOUNS = re.compile(
    r"(?<![A-Za-z])(?<!access )(?<!access.command\(\")(?<!\"access\", \")"
    r"(who(m|ever)?|(some|no|any|every)body|(some|any|every)one)(?![A-Za-z])",
    re.IGNORECASE,
)
"""What stands for a component without naming it; also within an identifier. `tidelog access who` is
a command."""

FIELD_WORDS = {
    r"rotten": "corrupt",
    r"mend(s|ed|ing)?": "repair",
    r"anew": "recreate, again",
    r"vouch(es|ed|ing)?": "guarantee",
    r"lodgers?": "name the client",
    r"take(s|n)? note|took note": "name the change of state",
    r"gave up|give(s|n)? up|giving up": "remove, stop, abandon",
    r"let(s)? go": "release, revoke",
    r"planted": "applied",
    r"counted on": "in the ISR",
    r"do(es)? away with": "delete",
    r"begin(s)? anew": "recreate",
}
"""Household words, and the field's."""

_HOUSEHOLD = re.compile(
    r"(?<![A-Za-z])(" + "|".join(f"(?:{word})" for word in FIELD_WORDS) + r")(?![A-Za-z])",
    re.IGNORECASE,
)

CLAUSES = {
    "what", "which", "where", "how", "who", "whose", "when", "why", "that", "whether", "if", "to",
    "from", "it", "this", "these", "all", "does", "says", "tells", "makes", "holds", "keeps",
    "reads", "writes", "takes", "gives", "is", "are",
}  # fmt: skip
"""First words of a line that is a clause and no noun phrase."""

_DOCSTRING = re.compile(r'(?:\s|#.*\n)*r?"""\s*(?P<word>[A-Za-z\']*)(?P<rest>.*)')
"""First line of the docstring at the start of a module."""


def tracked() -> Iterator[tuple[str, str]]:
    """Return path and text of each file that people wrote."""
    names = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.split("\0")
    for name in names:
        path = ROOT / name
        if (
            not name
            or name in {THIS, "LICENSE"}
            or path.is_symlink()
            or not path.is_file()
            or Path(name).suffix not in SUFFIXES
            or name.startswith(("bench/results/", "tests/golden/frames/"))
        ):
            continue
        yield name, path.read_text(encoding="utf-8")


def found(rule: re.Pattern[str], name: str, text: str) -> Iterator[str]:
    """Return each place of a text that a rule refuses."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in rule.finditer(line):
            yield f"{name}:{number}: {match[0]!r} in: {line.strip()[:90]}"


def clause_instead_of_noun(name: str, text: str) -> Iterator[str]:
    """Return the first line of a module's docstring if it is no noun phrase."""
    docstring = _DOCSTRING.match(text)
    if docstring is not None and docstring["word"].lower() in CLAUSES:
        yield f"{name}:1: no noun phrase: {docstring['word']}{docstring['rest']}"


def test_no_pronoun_stands_for_a_component() -> None:
    findings = [each for name, text in tracked() for each in found(PRONOUNS, name, text)]

    assert not findings, f"{len(findings)} places; name the component\n" + "\n".join(findings)


def test_the_field_has_a_word() -> None:
    findings = [each for name, text in tracked() for each in found(_HOUSEHOLD, name, text)]

    assert not findings, f"{len(findings)} places\n" + "\n".join(findings)


def test_a_module_is_introduced_by_a_noun_phrase() -> None:
    findings = [
        each
        for name, text in tracked()
        if name.endswith(".py")
        for each in clause_instead_of_noun(name, text)
    ]

    assert not findings, f"{len(findings)} modules\n" + "\n".join(findings)


@pytest.mark.parametrize(
    ("text", "is_refused"),
    [
        ("The follower truncates its log.", False),
        ("Who is late truncates.", True),
        ("def test_who_is_late() -> None: ...", True),
        ("whole, whose, anyhow", False),
    ],
)
def test_the_rule_knows_pronouns(text: str, *, is_refused: bool) -> None:
    assert bool(list(found(PRONOUNS, "a.py", text))) == is_refused


def test_the_rules_know_household_words_and_clauses() -> None:
    assert list(found(_HOUSEHOLD, "a.py", "the log is mended"))
    assert not list(found(_HOUSEHOLD, "a.py", "amended, forgiven"))
    assert list(clause_instead_of_noun("a.py", '"""What a batch holds."""'))
    assert not list(clause_instead_of_noun("a.py", '"""The columns of a batch."""'))
