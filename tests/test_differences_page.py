"""The page of differences from Amazon SQS agrees with the marks of the tests."""

import pytest

from tests.differences import (
    PAGE,
    SECTIONS,
    Difference,
    all_differences,
    differences_in,
    page_of,
)

MODULE = """
@pytest.mark.difference("Queues", cloud="It waits.", here="It does not.", why="No need.")
@pytest.mark.parametrize("name", ["a"])
async def test_one(name): ...

@pytest.mark.difference("Messages", cloud="a", here="b", why="c", switch="`--strict-sqs`")
def test_two(): ...
"""


def test_the_page_has_the_differences_of_the_tests() -> None:
    found = all_differences()

    assert {each.section for each in found} == set(SECTIONS)
    assert page_of(found) == PAGE.read_text(encoding="utf-8"), "stale: run `make matrices`"


def test_marks_are_found() -> None:
    one, two = differences_in(MODULE, "a/test_b.py")

    assert one == Difference(
        "Queues", "It waits.", "It does not.", "No need.", "", "`a/test_b.py`: `test_one`"
    )
    assert (two.section, two.switch) == ("Messages", "`--strict-sqs`")
    row = "| It waits. | It does not. | No need. | none | `a/test_b.py`: `test_one` |"
    assert row in page_of([one, two]).splitlines()


@pytest.mark.parametrize("parts", ['cloud="a", here="b"', 'cloud="a", here="b", why="c", x="d"'])
def test_a_mark_that_lacks_a_part_is_refused(parts: str) -> None:
    text = f'@pytest.mark.difference("Queues", {parts})\ndef test_one(): ...\n'

    with pytest.raises(ValueError, match="the mark of test_one has"):
        list(differences_in(text, "test_a.py"))
