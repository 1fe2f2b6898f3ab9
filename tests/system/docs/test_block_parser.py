"""Tests of the parser of code blocks."""

import pytest

from tests.system.docs.blocks import Command, begins_like, blocks_of, commands_of, is_like

PAGE = """\
# A page

```sh norun="needs Docker"
docker run
```

```python title="orders.py"
print(1)
```

```console until title="terminal 2"
$ tidelog topic \\
    list
orders
$ true
```

```text output
1
```
"""


def test_blocks_have_their_languages_words_files_and_lines() -> None:
    shell, program, console, output = blocks_of(PAGE)

    assert shell.is_skipped
    assert shell.reason == "needs Docker"
    assert not shell.is_run
    assert (program.file, program.text, program.line) == ("orders.py", "print(1)\n", 7)
    assert not program.is_run
    assert console.is_run
    assert (console.words, console.file) == (frozenset({"until"}), "")
    assert output.is_output
    assert not output.is_run


def test_commands_have_their_outputs() -> None:
    console = blocks_of(PAGE)[2]

    assert commands_of(console.text) == [
        Command("tidelog topic \\\n    list", "orders"),
        Command("true", ""),
    ]


@pytest.mark.parametrize(
    ("shown", "output"),
    [
        ("a\nb", "a\nb\n"),
        ("a ... c", "a b b c"),
        ("a  ...  c", "a     b b c"),
        ("took ... s", "took 0.07 s"),
        ("a\n...\nc", "a\nb\nb\nc"),
        ("a\n...\nc", "a\nc"),
        ("...\nc", "a\nb\nc"),
        ("a\n...", "a\nb"),
        ("a b", "a b  "),
    ],
)
def test_dots_stand_for_any_text(shown: str, output: str) -> None:
    assert is_like(shown, output)


@pytest.mark.parametrize(
    ("shown", "output"),
    [("a\nb", "a\nc"), ("a ... c", "a b\nc"), ("a", "a\nb"), ("a\n...\nc", "a\nb"), ("a.c", "abc")],
)
def test_another_output_is_refused(shown: str, output: str) -> None:
    assert not is_like(shown, output)


def test_a_command_that_runs_on_is_compared_by_its_first_lines() -> None:
    assert begins_like("a ...\nb", "a 1\nb\nc\nd\n")
    assert begins_like("a", "a\n")
    assert not begins_like("a\nb", "a\n")
