"""Every code block of the documentation site runs in a test, or says why it does not."""

import re
import shlex
from pathlib import Path
from typing import Final

import click
import pytest

from tests.paths import ROOT
from tests.system.docs import test_blocks, test_page_examples
from tests.system.docs.blocks import Block, blocks_of
from tests.system.docs.site_pages import blocks_in, site_pages
from tidelog.broker.config.broker_config import resolve_config
from tidelog.cli.main import tidelog
from tools.docs_site.reference import command_pages

PAGES: Final = site_pages()
NORUN_MAX: Final = 5
DRY_MAX: Final = 12
_FENCE: Final = re.compile(r"^ *```+([^\n]*)$", re.MULTILINE)
_INDENTED: Final = re.compile(r"^\n {4}(?![ -]|\d)\S", re.MULTILINE)
_COMMAND: Final = re.compile(r"^(?:\$ |tidelog |make |pip |python |docker |kubectl )", re.MULTILINE)

SPARK_PAGES: Final = {"README.md", "docs/audit.md", "docs/spark.md", "docs/tutorial.md"}
"""Pages with blocks that `tests/system/spark` runs."""

FORMAT_PROGRAM: Final = "docs/formats/record_batch.md"
"""Page whose program `tests/golden/test_format_pages.py` runs."""


def runner_of(page: str, block: Block) -> str:
    """Return the test that runs a block, `text` if it is no code, or nothing."""
    is_page_of_blocks = block.is_run or block.is_output or block.file
    runners = {
        "norun": bool(block.reason),
        "spark": "spark" in block.words and page in SPARK_PAGES,
        "dry": block.is_make and "dry" in block.words,
        "make": block.is_make and not block.is_skipped,
        "blocks": page in test_blocks.PAGES and is_page_of_blocks,
        "examples": page in test_page_examples.PAGES and block.is_run,
        "config": block.language == "toml",
        "formats": page == FORMAT_PROGRAM and block.language == "python",
        "text": block.language == "text" and not _COMMAND.search(block.text),
    }
    return next((runner for runner, is_its in runners.items() if is_its), "")


@pytest.mark.parametrize("page", PAGES)
def test_a_test_runs_every_code_block(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = blocks_in(page)

    missed = [f"{page}, line {block.line}" for block in blocks if not runner_of(page, block)]

    assert missed == [], "no test runs these blocks; layouts and dumps are `text`"
    assert len(_FENCE.findall(text)) == 2 * len(blocks), "a fence is indented, or does not end"
    assert not _INDENTED.search(text), "a block needs a fence and a language"


@pytest.mark.parametrize(
    "block",
    [
        "```\ntidelog topic list\n```\n",
        "```text\ntidelog topic list\n```\n",
        "```sh norun\ntidelog topic list\n```\n",
        "```sh dry\ntidelog topic list\n```\n",
        "```python spark\nspark.read\n```\n",
        "```json\n{}\n```\n",
    ],
)
def test_a_block_that_no_test_runs_is_found(block: str) -> None:
    (found,) = blocks_of(block)

    assert not runner_of("docs/raft.md", found)


def test_few_blocks_do_not_run() -> None:
    runners = [runner_of(page, block) for page in PAGES for block in blocks_in(page)]

    assert runners.count("norun") <= NORUN_MAX
    assert runners.count("dry") <= DRY_MAX


def test_each_test_runs_some_block() -> None:
    runners = {runner_of(page, block) for page in PAGES for block in blocks_in(page)}

    assert runners == {
        "blocks",
        "config",
        "dry",
        "examples",
        "formats",
        "make",
        "norun",
        "spark",
        "text",
    }


@pytest.mark.parametrize("page", PAGES)
def test_configuration_files_are_valid(page: str, tmp_path: Path) -> None:
    for block in blocks_in(page):
        if block.language == "toml":
            file = tmp_path / "tidelog.toml"
            file.write_text(block.text, encoding="utf-8")
            resolve_config(file=str(file), environment={}, flags={})


@pytest.mark.parametrize(("page", "text"), command_pages().items(), ids=command_pages())
def test_the_examples_of_the_reference_are_command_lines(
    page: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del page
    (tmp_path / "tidelog-data" / "topics" / "orders.ID" / "0").mkdir(parents=True)
    for file in ("queues.txt", "scan.tiff", "tidelog.toml"):
        (tmp_path / file).touch()
    monkeypatch.chdir(tmp_path)
    examples = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in "".join(examples).splitlines():
        found = re.search(r"\btidelog (.*?)(?: [|<>] .*)?$", line)
        assert found is not None, line
        parse(found[1])


def parse(line: str) -> None:
    """Parse the command line of `tidelog`, down to its last subcommand.

    Raises:
        UsageError: It is not valid.
    """
    command: click.Command = tidelog
    context = click.Context(command, info_name="tidelog")
    words = shlex.split(line.replace("orders.*", "orders.ID"))
    while isinstance(command, click.Group):
        found = command.get_command(context, words.pop(0))
        assert found is not None, line
        command = found
    with command.make_context(command.name, words, parent=context):
        pass  # the end of the context closes the files of the command line
