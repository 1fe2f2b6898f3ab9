"""Tests of what the documentation site adds to MkDocs."""

from pathlib import PurePosixPath

import tidelog.surface
from tests.paths import ROOT
from tools.docs_site.links import INCLUDED, indent_lists, rewrite_fences, rewrite_links
from tools.docs_site.reference import api_names, api_pages, command_pages

REPO = "https://example.com/tidelog/"


def rewritten(markdown: str, *, page: str = "howto/fifo.md", repo_url: str = "") -> str:
    source = PurePosixPath("docs", page)
    return rewrite_links(markdown, source, PurePosixPath(page), repo_url=repo_url)


def test_every_public_name_is_on_one_page_of_the_api() -> None:
    names = [name for page in api_names().values() for name in page]

    assert sorted(names) == sorted(tidelog.surface.__all__)


def test_the_api_has_a_page_about_the_blocking_client() -> None:
    page = api_pages()["reference/api/blocking.md"]

    assert "::: tidelog.blocking.calls.admin.Admin\n" in page
    assert "      heading: connect\n" in page


def test_a_command_has_its_help_options_and_examples() -> None:
    page = command_pages()["reference/cli/topic.md"]

    assert "## tidelog topic create\n\nCreate a topic.\n" in page
    assert "| `--partitions INTEGER` | Set the number of partitions. \\[default: 1\\] |\n" in page
    assert "```sh\ntidelog topic create orders --partitions 6\n" in page


def test_every_page_of_the_reference_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")

    for page in (*command_pages(), *api_pages(), *INCLUDED.values()):
        assert page in navigation


def test_links_to_pages_stay() -> None:
    text = "[a](../queues.md#messages), [b](#here), [c](https://example.com/x.py)"

    assert rewritten(text) == text


def test_links_to_pages_outside_of_docs_lead_to_their_place_on_the_site() -> None:
    assert rewritten("[a](../../CHANGELOG.md#x)") == "[a](../project/changelog.md#x)"


def test_links_to_source_files_need_a_repository() -> None:
    text = "[`log`](../../logstore/log.py)"

    assert rewritten(text) == "`log`"
    assert rewritten(text, repo_url=REPO) == f"[`log`]({REPO}blob/main/logstore/log.py)"


def test_links_in_code_stay() -> None:
    text = "```python\n[a](../../logstore/log.py)\n```\n"

    assert rewritten(text) == text


def test_blocks_keep_language_and_title_only() -> None:
    text = (
        '```console until title="terminal 2"\n$ true\n```\n\n```sh norun="needs root"\nmount\n```\n'
    )

    assert rewrite_fences(text) == (
        '```console title="terminal 2"\n$ true\n```\n\n```sh\nmount\n```\n'
    )


def test_items_of_lists_are_indented_by_four_spaces() -> None:
    text = "1. a\n\n   b\n2. h\n\n- c\n  - d\n  ```\n  e\n  ```\n\nf\n  g\n"

    assert indent_lists(text) == (
        "1. a\n\n    b\n\n2. h\n\n- c\n    - d\n    ```\n    e\n    ```\n\nf\n  g\n"
    )
