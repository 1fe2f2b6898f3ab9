"""The pages of invariants and statements agree with the marks of the tests."""

import pytest

from tests.matrices import PAGES, Page, all_witnesses, page_of, witnesses_in
from tests.paths import ROOT

MODULE = """
@given(x)
@pytest.mark.invariant("I1", "I2")
@pytest.mark.statement("b3")
async def test_one(): ...

class Checker:
    @pytest.mark.statement("s4")
    def check(self): ...

MUTATION = Mutation("no-sync", "about", (a, "b", c), shows=("I5",))
"""


@pytest.fixture(scope="module")
def pages() -> dict[str, Page]:
    witnesses = all_witnesses()
    return {
        name: page_of((ROOT / "docs" / name).read_text(encoding="utf-8"), witnesses)
        for name in PAGES
    }


def test_every_statement_has_one_row(pages: dict[str, Page]) -> None:
    assert {name: page.ids for name, page in pages.items()} == PAGES


def test_every_mark_has_a_row(pages: dict[str, Page]) -> None:
    known = {each for page in pages.values() for each in page.ids}

    assert not all_witnesses().keys() - known, "ids without a row"


def test_every_row_has_a_test_or_says_why_not(pages: dict[str, Page]) -> None:
    assert [each for page in pages.values() for each in page.bare] == []


@pytest.mark.parametrize("name", ["raft.md", "groups.md"])
def test_every_invariant_of_raft_and_of_groups_has_a_test(name: str) -> None:
    assert set(PAGES[name]) <= all_witnesses().keys()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_the_tests_that_are_marked(name: str, pages: dict[str, Page]) -> None:
    assert pages[name].generated == pages[name].text, "stale: run `make matrices`"


def test_marks_and_mutations_are_found() -> None:
    assert list(witnesses_in(MODULE)) == [
        ("I1", "test_one"),
        ("I2", "test_one"),
        ("b3", "test_one"),
        ("s4", "check"),
        ("I5", "no-sync"),
    ]


def test_only_the_last_column_is_generated() -> None:
    text = "# Page\n\n| b1 | It holds. | | stale |\n| b2 | Not here. | Why. | |\n| b3 | So. | | |\n"

    page = page_of(text, {"b1": [("a.py", "test_a"), ("a.py", "test_b"), ("b.py", "test_c")]})

    row = "| b1 | It holds. | | `a.py`: `test_a`, `test_b`; `b.py`: `test_c` |"
    assert page.generated.splitlines()[2] == row
    assert page.generated.splitlines()[3] == "| b2 | Not here. | Why. | |"
    assert page.bare == ["b3"]
