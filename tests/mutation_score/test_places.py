"""Places of mutations, and samples of them."""

import pytest

pytest.importorskip("cosmic_ray", reason="make .venv/installed-mutation installs the operators")

from tests.mutation_score.places import places_in, sample
from tests.paths import ROOT

SOURCE = '''"""Doc."""

@final
class Window(Struct, frozen=True):
    size: int | None = 7

    def has_room(self, used: int | None) -> bool | None:
        return used is None or self.size - used > 0
'''


def test_declarations_are_no_places() -> None:
    found = {place.at[0]: place for place in places_in("wire/window.py", SOURCE)}

    assert {(line, SOURCE.splitlines()[line - 1][column:][:2]) for line, column in found} == {
        (5, "7"),
        (8, "is"),
        (8, "or"),
        (8, "- "),
        (8, "> "),
        (8, "0"),
    }


def test_a_place_has_all_its_operators_and_none_that_makes_an_equal_program() -> None:
    (place,) = (each for each in places_in("wire/a.py", "same = a == b\n"))

    names = {name.rpartition("_")[2] for name, _ in place.choices}

    assert names == {"NotEq", "Lt", "LtE", "Gt", "GtE", "IsNot"}


def test_parameters_have_no_operators() -> None:
    source = "def area(a, /, b, *, c=2 * 3):\n    return f(a, *b) / c\n"

    found = {place.at[0] for place in places_in("wire/a.py", source)}

    columns = [source.splitlines()[0].index(text) for text in ("2", "* 3", "3")]
    assert found == {*((1, column) for column in columns), (2, 20)}


def test_a_seed_draws_the_same_mutants_again() -> None:
    file = "isr/catch_up_budget.py"
    places = places_in(file, (ROOT / file).read_text(encoding="utf-8"))

    first, second, other = (list(sample(places, seed)) for seed in (1, 1, 2))

    assert first == second != other
    assert len(first) == len(places)
    assert all(each.before != each.after for each in first)
    assert first[0].module == "tidelog.isr.catch_up_budget"
