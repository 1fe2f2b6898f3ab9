"""The MkDocs hooks of the documentation site.

They add the pages that are generated at build time (command line, API, changelog). They also
translate links to files outside of `docs/`, and remove the words after the language of a code
block, which only tests read.
"""

import logging
import re
import sys
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Final

ROOT: Final = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))  # MkDocs imports this file by its path.

from tools.docs_site.links import INCLUDED, indent_lists, rewrite_fences, rewrite_links  # noqa: E402
from tools.docs_site.reference import api_pages, command_pages  # noqa: E402

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

_log = logging.getLogger("mkdocs.hooks.tidelog")
_UNRENDERED: Final = re.compile(r"<p>(?:(?!</p>|<pre>|<code>).)*\n(?:[-*] |\d+\. |\|)", re.DOTALL)


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the generated pages, and the pages outside of `docs/`."""
    from mkdocs.structure.files import File  # noqa: PLC0415

    generated = {**command_pages(), **api_pages()}
    for source, path in INCLUDED.items():
        generated[path] = (ROOT / source).read_text(encoding="utf-8")
    for path, text in generated.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, *, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Translate links, code blocks and lists from the repository to the site."""
    del files
    path = page.file.src_uri
    sources = {site: source for source, site in INCLUDED.items()}
    source = PurePosixPath(sources.get(path, f"docs/{path}"))
    text = rewrite_links(markdown, source, PurePosixPath(path), repo_url=config.repo_url or "")
    return indent_lists(rewrite_fences(text))


def on_page_content(html: str, *, page: "Page", config: "MkDocsConfig", files: "Files") -> str:
    """Warn of lists and tables that GitHub renders and Python-Markdown does not."""
    del config, files
    for found in _UNRENDERED.finditer(html):
        line = found[0].rpartition("\n")[0][-60:].replace("\n", " ")
        _log.warning("%s: a blank line is missing after: %s", page.file.src_uri, line)
    return html
