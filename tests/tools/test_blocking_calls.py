"""The calls of the blocking face, as they are written."""

import inspect

import pytest

import tidelog
from tidelog import blocking
from tools.blocking_calls import FACES, FOLDER, Face, written


@pytest.mark.parametrize("face", FACES, ids=lambda face: face.file)
def test_the_written_calls_are_up_to_date(face: Face) -> None:
    stored = (FOLDER / f"{face.file}.py").read_text(encoding="utf-8")

    assert written(face) == stored, "run: make generate"


@pytest.mark.parametrize("name", ["Admin", "Producer", "Queue", "Message", "Consumer"])
def test_help_says_the_same_as_that_of_the_client(name: str) -> None:
    waiting: type = getattr(blocking, name)
    asynchronous: type = getattr(tidelog, name)
    shared = [each for each in vars(asynchronous) if each in dir(waiting) and each[0] != "_"]

    for method in (
        each for each in shared if inspect.iscoroutinefunction(vars(asynchronous)[each])
    ):
        about = inspect.getdoc(getattr(asynchronous, method))
        assert about is not None
        assert inspect.getdoc(getattr(waiting, method)) == about.replace("await ", "")
        assert not inspect.iscoroutinefunction(getattr(waiting, method))
