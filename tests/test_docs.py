"""Files, headings, tests and commands in the pages exist."""

import re
from collections.abc import Iterator
from functools import cache
from typing import Final

import click
import pytest

from tests.paths import ROOT
from tidelog.cli.connected import BROKER, TLS_OPTIONS
from tidelog.cli.main import tidelog
from tidelog.cli.names import Name

PAGES: Final = sorted(
    str(path.relative_to(ROOT))
    for pattern in ("*.md", "docs/**/*.md", "bench/*.md", "bench/peers/*.md", "examples/*.md")
    for path in ROOT.glob(pattern)
)

GROUPS: Final = {
    name
    for name in tidelog.list_commands(click.Context(tidelog))
    if isinstance(tidelog.get_command(click.Context(tidelog), name), click.Group)
}

_ROOTS: Final = ("", "tests/", "tests/simulation/")
"""Paths to modules begin at one of these."""

_BLOCK: Final = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_LINK: Final = re.compile(r"\]\((?![a-z]+:)([^)#\s]*)#?([^)\s]*)\)")
_CODE: Final = re.compile(r"`([^`]+)`")
_PATH: Final = re.compile(r"`((?:[\w.*-]+/)+[\w*-]+\.py)`((?:,? (?:and )?\"[^\"]+\")*)")
_SUBCOMMAND: Final = re.compile(r"[a-z]+ [a-z]")
_COMMAND_LINE: Final = re.compile(r"^ *(tidelog [a-z-].*)$", re.MULTILINE)


def read(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def broken_links(page: str, text: str) -> list[str]:
    broken: list[str] = []
    for file, anchor in _LINK.findall(_BLOCK.sub("", text)):
        target = (ROOT / page).parent / file if file else ROOT / page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text("utf-8"))):
            broken.append(f"{file}#{anchor}")
    return broken


def missing_code(text: str) -> list[str]:
    """Return paths of modules that do not exist, and facts that no test of a module shows."""
    missing: list[str] = []
    for pattern, facts in _PATH.findall(_BLOCK.sub("", text)):
        paths = [each for root in _ROOTS for each in ROOT.glob(root + pattern)]
        if not paths:
            missing.append(pattern)
            continue
        source = "".join(each.read_text("utf-8") for each in paths)
        for fact in re.findall(r'"([^"]+)"', facts):
            name = re.sub(r"[^a-z0-9]+", "_", fact.lower()).strip("_")
            if not re.search(rf"def test_\w*{name}", source):
                missing.append(f"{pattern}: {fact}")
    return missing


def missing_tests(text: str) -> set[str]:
    """Return names of tests that no module defines."""
    return set(re.findall(r"`(test_\w+)`", text)) - all_tests()


@cache
def all_tests() -> set[str]:
    return {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)", path.read_text(encoding="utf-8"))
    }


def command_lines(text: str) -> Iterator[list[str]]:
    """Yield the words of all commands in code, without `tidelog` itself."""
    spans = (" ".join(each.split()) for each in _CODE.findall(_BLOCK.sub("", text)))
    blocks = " \n".join(_BLOCK.findall(text)).replace("\\\n", " ")
    for line in (*spans, *_COMMAND_LINE.findall(blocks)):
        words = re.split(r" [|&#;>]|;", line)[0].split()
        if words[:1] == ["tidelog"]:
            yield words[1:]
        elif _SUBCOMMAND.match(line) and words[0] in GROUPS:
            yield words


def unknown_words(words: list[str]) -> list[str]:
    """Return the words of one command line that are no command or no option of it."""
    command: click.Command = tidelog
    options = {"--help"} | {name for each in tidelog.params for name in each.opts}
    rest = iter(words)
    for word in rest:
        if word in BROKER.opts or any(word in each.opts for each in TLS_OPTIONS):
            next(rest, None)
        elif word.startswith("--"):
            if word.split("=")[0] not in options:
                return [" ".join(words)]
        elif isinstance(command, click.Group):
            found = command.get_command(click.Context(command), word)
            if found is None:
                return [" ".join(words)]
            command = found
            options |= {name for each in command.params for name in each.opts}
            options |= {f"--{each.kind}" for each in command.params if isinstance(each, Name)}
    return []


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_to_a_file_and_a_heading(page: str) -> None:
    assert broken_links(page, read(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_path_to_a_module_exists(page: str) -> None:
    assert missing_code(read(page)) == []


@pytest.mark.parametrize("page", PAGES)
def test_every_test_exists(page: str) -> None:
    assert missing_tests(read(page)) == set()


@pytest.mark.parametrize("page", [page for page in PAGES if page != "CHANGELOG.md"])
def test_every_command_and_option_exists(page: str) -> None:
    assert [bad for words in command_lines(read(page)) for bad in unknown_words(words)] == []


def test_a_missing_target_is_found() -> None:
    text = (
        "# A page: 1.0\n[a](gone.md), [b](README.md#no), [c](#a-page-10), [d](https://e.org/x#y)\n"
        '`wire/gone.py`, `test_docs.py`, `tests/test_docs.py`, "every path" and "no such fact"\n'
        "`topic gone`, `tidelog topic\nlist --gone`, `topic list --json`\n"
        "`test_pages_are_found`, `test_gone`\n"
        "```\ntidelog topic create orders --gone | grep x --else\n```\n"
    )

    assert broken_links("README.md", text) == ["gone.md#", "README.md#no", "#a-page-10"]
    assert missing_code(text) == ["wire/gone.py", "tests/test_docs.py: no such fact"]
    assert missing_tests(text) == {"test_gone"}
    bad = [bad for words in command_lines(text) for bad in unknown_words(words)]
    assert bad == ["topic gone", "topic list --gone", "topic create orders --gone"]


def test_pages_are_found() -> None:
    assert {"README.md", "CONTRIBUTING.md", "docs/protocol.md", "docs/decisions/README.md"} <= {
        *PAGES
    }


def test_anchors_are_those_of_github() -> None:
    assert anchors("## What `acks` says: 1, 2\n```\n# no\n```\n") == {"what-acks-says-1-2"}
