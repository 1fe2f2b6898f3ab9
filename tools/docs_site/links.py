"""The translation of Markdown pages from GitHub to the documentation site."""

import posixpath
import re
from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Final

INCLUDED: Final = {
    "CHANGELOG.md": "project/changelog.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "bench/README.md": "project/benchmarks.md",
    "bench/REPORT.md": "project/benchmark-report.md",
    "bench/peers/README.md": "project/benchmark-peers.md",
    "examples/README.md": "project/examples.md",
}
"""Pages outside of `docs/` that are part of the site, and their paths there."""

_FENCE: Final = re.compile(r"^( *)(```+)([^\n`]*)$(.*?)^\1\2 *$", re.MULTILINE | re.DOTALL)
_MARKER: Final = re.compile(r"(?:[-*]|\d+\.) ")
_INDENT: Final = 4
_LINK: Final = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])+)\]\((?![a-z]+:)([^)#\s]+)(#[^)\s]*)?\)")


def rewrite_links(
    markdown: str, source: PurePosixPath, path: PurePosixPath, *, repo_url: str
) -> str:
    """Return a page whose links are valid on the site.

    A link to a file that is not a page becomes a link to `repo_url`. Without `repo_url`, the text
    of the link stays.
    """

    def target_of(found: "re.Match[str]") -> str:
        text, file, anchor = found[1], found[2], found[3] or ""
        target = posixpath.normpath(posixpath.join(source.parent, file))
        page = INCLUDED.get(target) or (
            target.removeprefix("docs/") if target.startswith("docs/") else None
        )
        if page is not None and not posixpath.splitext(page)[1]:
            page = f"{page}/README.md" if page == "decisions" else None
        if page is not None:
            return f"[{text}]({posixpath.relpath(page, path.parent)}{anchor})"
        if repo_url:
            return f"[{text}]({repo_url.rstrip('/')}/blob/main/{target}{anchor})"
        return text

    return _outside_of_fences(markdown, lambda text: _LINK.sub(target_of, text))


def rewrite_fences(markdown: str) -> str:
    """Return a page whose code blocks have a language and a title only."""

    def shown(found: "re.Match[str]") -> str:
        indent, fence, info, body = found.groups()
        language, _, rest = info.strip().partition(" ")
        title = re.search(r'title="[^"]*"', rest)
        words = " ".join(each for each in (language, title[0] if title else "") if each)
        return f"{indent}{fence}{words}{body}{indent}{fence}"

    return _FENCE.sub(shown, markdown)


def indent_lists(markdown: str) -> str:
    """Return a page whose list items are indented by four spaces, as Python-Markdown needs.

    GitHub accepts two after `- ` and three after `1. `. After a second paragraph, the next item
    needs a blank line.
    """
    lines: list[str] = []
    width = 0  # of the marker of the list that the line belongs to; 0 outside of lists
    was_blank, has_paragraphs = True, False
    for line in markdown.split("\n"):
        marker = _MARKER.match(line)
        if marker:
            if has_paragraphs and not was_blank:
                lines.append("")
            width, has_paragraphs = len(marker[0]), False
        elif line and not line.startswith(" ") and (was_blank or line.startswith("```")):
            width = 0
        is_within = 0 < width < _INDENT and line.startswith(" " * width)
        lines.append(" " * (_INDENT - width) + line if is_within else line)
        was_blank = not line
        has_paragraphs |= was_blank
    return "\n".join(lines)


def _outside_of_fences(markdown: str, translate: Callable[[str], str]) -> str:
    parts: list[str] = []
    end = 0
    for fence in _FENCE.finditer(markdown):
        parts += [translate(markdown[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, translate(markdown[end:])])
