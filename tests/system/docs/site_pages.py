"""The pages of the documentation site, from their source files."""

import re
from typing import Final

from tests.paths import ROOT
from tests.system.docs.blocks import Block, blocks_of
from tools.docs_site.links import INCLUDED

_PAGE: Final = re.compile(r"(?:: |- )(\S+\.md)$", re.MULTILINE)
_GENERATED: Final = "reference/"


def site_pages() -> list[str]:
    """Return the source files of all pages in the navigation, without the generated reference."""
    sources = {site: source for source, site in INCLUDED.items()}
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[2]
    pages = [page for page in _PAGE.findall(navigation) if not page.startswith(_GENERATED)]
    return ["README.md", *(sources.get(page, f"docs/{page}") for page in pages)]


def blocks_in(page: str) -> list[Block]:
    """Return the code blocks of a source file."""
    return blocks_of((ROOT / page).read_text(encoding="utf-8"))
