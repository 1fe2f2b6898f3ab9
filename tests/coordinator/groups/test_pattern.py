"""Topic patterns are globs; matching them never backtracks."""

import re
from fnmatch import translate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.pattern import PATTERN_LENGTH_MAX, TopicPattern
from tidelog.wire.errors import InvalidRequestError

names = st.text(alphabet="abc-_.1", max_size=8)
atoms = st.sampled_from(["a", "b", "1", "-", "_", "*", "?", "[ab]", "[!a]", "[a-c1]", "[!0-9]"])
globs = st.lists(atoms, min_size=1, max_size=8).map("".join)
patterns = st.lists(globs, min_size=1, max_size=3).map(",".join)


def matches_by_hand(glob: str, name: str) -> bool:
    """Match a glob recursively, character by character."""
    if not glob:
        return not name
    if glob[0] == "*":
        return any(matches_by_hand(glob[1:], name[at:]) for at in range(len(name) + 1))
    if not name:
        return False
    if glob[0] == "[":
        end = glob.index("]")
        return _in_class(glob[1:end], name[0]) and matches_by_hand(glob[end + 1 :], name[1:])
    return glob[0] in ("?", name[0]) and matches_by_hand(glob[1:], name[1:])


def _in_class(characters: str, character: str) -> bool:
    is_negated = characters.startswith("!")
    found = re.fullmatch(f"[{characters.removeprefix('!')}]", character) is not None
    return found is not is_negated


@given(patterns, st.lists(names, min_size=1))
def test_a_pattern_matches_if_one_of_its_globs_does(pattern: str, tried: list[str]) -> None:
    compiled = TopicPattern(pattern)

    for name in tried:
        expected = any(matches_by_hand(glob, name) for glob in pattern.split(","))
        assert compiled.matches(name) is expected, name


def test_a_regular_expression_is_written_as_one_of_the_recommended_globs() -> None:
    with pytest.raises(InvalidRequestError, match="as a regular expression") as refused:
        TopicPattern("orders.*")

    found = re.findall(r"'([^']+)' for (.*?)(?:, or|$)", str(refused.value))
    assert [meaning for _, meaning in found] == ["any characters", "a dot and any characters"]
    whole, after_dot = (TopicPattern(f"orders{glob}") for glob, _ in found)
    assert [whole.matches(name) for name in ("orders-eu", "orders.eu")] == [True, True]
    assert [after_dot.matches(name) for name in ("orders-eu", "orders.eu")] == [False, True]


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("orders", "my-orders", False),
        ("orders-*", "orders-eu", True),
        ("orders-*", "orders-", True),
        ("*-eu", "orders-eu", True),
        ("orders?v1", "orders.v1", True),
        ("eu.orders", "eu-orders", False),
        ("orders[.]*", "orders.eu", True),
        ("orders[.]*", "orders-eu", False),
        ("[!o]*", "orders", False),
        ("orders-*,billing", "billing", True),
        ("orders-*,billing", "billing-eu", False),
        ("*", "orders", True),
    ],
)
def test_a_pattern_matches_the_whole_name(pattern: str, name: str, *, is_match: bool) -> None:
    assert TopicPattern(pattern).matches(name) is is_match


@pytest.mark.parametrize(
    ("pattern", "name"),
    [
        ("*a" * 120 + "b", "a" * 249),
        ("*?" * 120 + "b", "a" * 249),
        ("*[a-y]" * 40 + "z", "a" * 249),
        ("*ab" * 80 + "c", "ab" * 124),
        (",".join(["*a*a*a*b"] * 27), "a" * 249),
    ],
)
def test_a_hostile_pattern_matches_in_bounded_time(pattern: str, name: str) -> None:
    """With backtracking, none of these would end."""
    assert not TopicPattern(pattern).matches(name)


@given(globs)
def test_only_the_last_star_of_a_glob_can_backtrack(glob: str) -> None:
    expression = translate(glob)
    atomic = re.findall(r"\(\?>\.\*\?", expression)

    assert expression.count(".*") - len(atomic) <= 1


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "1 to 249 characters"),
        ("a" * (PATTERN_LENGTH_MAX + 1), "1 to 249 characters"),
        ("orders-.*", r"has '\.\*', as a regular expression; patterns are globs"),
        ("billing,orders.*", "'orders.*' has"),
        ("orders|billing", "is no glob"),
        ("(a+)+b", "is no glob"),
        ("^orders$", "is no glob"),
        (r"\d", "is no glob"),
        ("a{2}", "is no glob"),
        ("[^a]", "is no glob"),
        ("[a", "is no glob"),
        ("a]", "is no glob"),
        ("[]", "is no glob"),
        ("[!]", "is no glob"),
        ("a,,b", "'' is no glob"),
        ("a, b", "' b' is no glob"),
        ("a/b", "is no glob"),
    ],
)
def test_an_invalid_pattern_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        TopicPattern(pattern)


@given(st.text(alphabet="ab.[](){}|*+?^$\\-!,12", max_size=12), names)
def test_any_pattern_is_compiled_or_refused(pattern: str, name: str) -> None:
    try:
        compiled = TopicPattern(pattern)
    except InvalidRequestError:
        return
    assert compiled.matches(name) is any(matches_by_hand(g, name) for g in pattern.split(","))
