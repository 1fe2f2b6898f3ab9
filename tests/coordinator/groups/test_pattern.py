"""Patterns match as Python's own do, in linear time, and say what they cannot be."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidelog.coordinator.groups.pattern import PATTERN_LENGTH_MAX, TopicPattern
from tidelog.wire.errors import InvalidRequestError

names = st.text(alphabet="abc-_.1", max_size=8)
atoms = st.sampled_from(
    ["a", "b", "c", "1", "-", r"\.", ".", r"\d", r"\w", r"\D", r"\W", "[ab]", "[^a]", "[a-c1]"]
)


def bigger(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    groups = parts.map(lambda part: f"({part})")
    return st.one_of(
        st.lists(parts, max_size=3).map("".join),
        st.lists(parts, min_size=2, max_size=3).map("|".join).map(lambda part: f"(?:{part})"),
        st.tuples(
            st.one_of(atoms, groups),
            st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{0}", "{2,3}", "{0,}"]),
        ).map("".join),
    )


patterns = st.recursive(atoms, bigger, max_leaves=6).filter(
    lambda pattern: 0 < len(pattern) <= PATTERN_LENGTH_MAX
)


@given(patterns, st.lists(names, min_size=1))
def test_a_pattern_matches_what_the_same_pattern_of_python_matches(
    pattern: str, tried: list[str]
) -> None:
    ours, theirs = TopicPattern(pattern), re.compile(pattern, re.ASCII | re.DOTALL)

    for name in tried:
        assert ours.matches(name) == (theirs.fullmatch(name) is not None), name


@pytest.mark.parametrize(
    ("pattern", "name", "is_match"),
    [
        ("orders", "orders", True),
        ("orders", "orders-eu", False),
        ("orders", "my-orders", False),
        ("^orders-.*$", "orders-eu", True),
        ("a|bc", "bc", True),
        ("a||b", "", True),
        ("[a-]", "-", True),
        (r"[\d.]", ".", True),
        (r"eu\.orders", "eu-orders", False),
    ],
)
def test_a_pattern_is_for_the_whole_name(pattern: str, name: str, *, is_match: bool) -> None:
    assert TopicPattern(pattern).matches(name) is is_match


@pytest.mark.parametrize("pattern", ["(a+)+b", "(a|a)*b", "(a*)*b", "(.*.*)*b", "(a?){40}a{40}b"])
def test_a_pattern_that_stalls_others_is_matched_at_once(pattern: str) -> None:
    began = process_time()
    is_match = TopicPattern(pattern).matches("a" * 249)
    took = process_time() - began

    assert not is_match
    assert took < 1.0, "with backtracking it would take longer than the age of the universe"


def test_ten_thousand_names_take_a_moment() -> None:
    pattern = TopicPattern(r"(orders|billing)-[a-z]+(\.v\d+)?")
    began = process_time()

    count = sum(pattern.matches(f"orders-europe.v{number}") for number in range(10_000))

    assert count == 10_000
    assert process_time() - began < 1.0, "it takes about 20 ms"


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("", "1 to 249 characters"),
        ("a" * 250, "1 to 249 characters"),
        ("*", "'\\*' is not expected"),
        ("a**", "cannot be repeated"),
        ("a+?", "cannot be repeated"),
        ("(a", "not closed"),
        ("a)", "not expected"),
        ("[a", "ends too early"),
        ("[]", "no characters"),
        ("[z-a]", "a range in a class"),
        ("[[a]", "within a class"),
        (r"[\D]", "cannot stand in a class"),
        ("a\\", "ends too early"),
        (r"\1", "not supported"),
        (r"\bx", "not supported"),
        ("(?=a)", "not expected"),
        ("a$b", "not expected"),
        ("a^b", "not expected"),
        ("a{3,2}", "a repetition is"),
        ("a{x}", "a number"),
        ("a{1001}", "a number"),
        ("((a{50}){50}){50}", "more than 400 steps"),
        (".*a.{20}", "in one pass"),
        ("(" * 21 + ")" * 21, "nested too deeply"),
    ],
)
def test_what_is_not_supported_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidRequestError, match=reason):
        TopicPattern(pattern)


def test_whatever_can_be_understood_is_understood_soon() -> None:
    began = process_time()
    for pattern in ("(a?){60}a{60}", "[a-z]{249}", ".*a.{7}", "(.*a.*b){40}"):
        TopicPattern(pattern)

    assert process_time() - began < 4.0, "it takes about 0.2 s"


@pytest.mark.filterwarnings("ignore:Possible :FutureWarning")  # of Python's own patterns
@given(st.text(alphabet="ab.[](){}|*+?^$\\-,12dW", max_size=12), names)
def test_whatever_a_client_sends_is_matched_or_refused(pattern: str, name: str) -> None:
    try:
        ours = TopicPattern(pattern)
    except InvalidRequestError:
        return
    assert ours.matches(name) == (re.fullmatch(pattern, name, re.ASCII) is not None)
