"""The results of mutation scores, and the page that is generated from them."""

import ast

from tests.mutation_score.page import describe
from tests.mutation_score.records import Judgement, Score, Survivor, read_judgements, read_scores
from tests.mutation_score.rooms import ROOMS
from tests.paths import ROOT

PAGE = ROOT / "docs" / "mutation-score.md"
SURVIVOR = Survivor(
    file="isr/leader.py", line=7, operator="NumberReplacer", before="a | 1", after="a | 2"
)
FIRST = Score(
    date="2026-11-26",
    commit="2024e467",
    room="isr",
    seed=3,
    places=1200,
    sample=40,
    by_tests=35,
    timed_out=1,
    by_simulation=1,
    has_simulation=True,
    survivors=[SURVIVOR] * 4,
)
AGAIN = Score(
    date="2026-11-27",
    commit="77f1c0de",
    room="isr",
    seed=3,
    places=1201,
    sample=40,
    by_tests=39,
    survivors=[SURVIVOR],
    again=True,
)


def test_the_page_is_as_the_files() -> None:
    page = describe(read_scores(), read_judgements())

    assert page == PAGE.read_text(encoding="utf-8"), "run: make generate"


def test_the_newest_score_counts_and_the_first_one_stays_visible() -> None:
    page = describe([FIRST, AGAIN], [])

    assert "| `isr` | 3 | 1,201 | 40 | 36 (90.0 %) | 39 (97.5 %) | 0 | 1 |" in page
    assert "| all | | 1,201 | 40 | 36 (90.0 %) | 39 (97.5 %) | 0 | 1 |" in page
    assert "| isr/leader.py:7 | `a \\| 1` | `a \\| 2` | **open** |" in page
    runs = page[page.index("## All runs") :]
    assert "| 2026-11-27 | 77f1c0de | `isr` | 3 | 40 | 39 | 0 | | 1 | again |" in runs
    assert "| 2026-11-26 | 2024e467 | `isr` | 3 | 40 | 35 | 1 | 1 | 4 | |" in runs


def test_an_equivalent_mutant_counts_as_not_killed() -> None:
    reason = Judgement("isr/leader.py", "a | 1", "a | 2", "both are even")

    page = describe([AGAIN], [reason])

    assert "| 39 (97.5 %) | 1 | 0 |" in page
    assert "| `a \\| 2` | both are even |" in page


def test_every_judgement_is_of_code_that_exists() -> None:
    for judgement in read_judgements():
        source = (ROOT / judgement.file).read_text(encoding="utf-8")
        lines = " ".join(line.strip() for line in source.splitlines())
        assert judgement.before in lines, f"{judgement.file}: {judgement.before} is gone"


def test_every_result_is_of_a_room_with_pure_cores() -> None:
    assert {each.room for each in read_scores()} <= ROOMS.keys()
    for room in ROOMS.values():
        assert room.modules
        for module in room.modules:
            imported = {
                each.names[0].name
                for each in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8")))
                if isinstance(each, ast.Import)
            }
            assert "trio" not in imported
