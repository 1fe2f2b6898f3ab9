"""What is said of a file."""

from tidelog.broker.inspection.findings import Problems, Verdict


def test_a_file_is_good_when_nothing_is_wrong() -> None:
    assert Verdict("f", note="a note").is_ok
    assert not Verdict("f", ("wrong",)).is_ok


def test_of_very_many_problems_the_first_ones_are_told_and_how_many_more_there_are() -> None:
    problems = Problems()
    for number in range(25):
        problems.add(str(number))

    assert len(problems) == 25
    assert problems.all()[:2] == ("0", "1")
    assert problems.all()[-1] == "and 5 more"
    assert len(problems.all()) == 21
