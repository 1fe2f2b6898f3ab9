"""Completion in shells: the script, commands, options, and names from the broker."""

import shutil
import subprocess
import sys

import pytest
import trio
from trio.testing import MockClock

from tidelog.cli import main
from tidelog.cli.names import completed_names

Printed = pytest.CaptureFixture[str]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_is_printed(shell: str, capsys: Printed) -> None:
    assert main.run(["completion", shell]) == 0

    script = capsys.readouterr().out
    assert f"_TIDELOG_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is not None:
        subprocess.run([shell, "-n"], input=script, text=True, check=True)


def completions(line: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the completions of the last word of a line, as bash gets them."""
    monkeypatch.setenv("_TIDELOG_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", line)
    monkeypatch.setenv("COMP_CWORD", str(len(line.split(" ")) - 1))
    main.run([])
    return [each.partition(",")[2] for each in capsys.readouterr().out.split()]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tidelog to", ["topic", "token", "top"]),
        ("tidelog topic des", ["describe"]),
        ("tidelog consume --from-b", ["--from-beginning"]),
        ("tidelog topic list --boot", ["--bootstrap-server"]),
        ("tidelog produce a --acks ", ["0", "1", "all"]),
    ],
)
def test_commands_and_options_are_completed(
    line: str, found: list[str], capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completions(line, capsys, monkeypatch) == found


def test_names_are_completed_from_the_broker(
    topic: str, queue: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = f"group-of-{topic}"
    assert main.run(["group", "alter", group, "--set", "owner=tests"]) == 0
    capsys.readouterr()

    assert topic in completions("tidelog topic describe topic-", capsys, monkeypatch)
    assert topic in completions("tidelog consume topic-", capsys, monkeypatch)
    assert queue in completions("tidelog queue describe queue-", capsys, monkeypatch)
    assert group in completions("tidelog group describe group-", capsys, monkeypatch)
    assert completions("tidelog topic create topic-", capsys, monkeypatch) == []


@pytest.mark.parametrize("address", ["127.0.0.1:1", "not:an:address"])
def test_without_a_broker_no_name_is_completed(
    address: str, capsys: Printed, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert completions(f"tidelog -b {address} topic describe o", capsys, monkeypatch) == []
    assert capsys.readouterr().err == ""


async def test_a_slow_broker_ends_a_completion(autojump_clock: MockClock) -> None:
    del autojump_clock
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")  # It never accepts.
    async with listener:
        port: int = listener.socket.getsockname()[1]
        began_at = trio.current_time()

        assert await completed_names(f"127.0.0.1:{port}", "topic", "o") == []
        assert trio.current_time() - began_at == pytest.approx(0.3)


def test_the_completion_of_a_command_imports_no_command() -> None:
    code = """
import os, sys
os.environ |= {"_TIDELOG_COMPLETE": "bash_complete", "COMP_WORDS": "tidelog to", "COMP_CWORD": "1"}
from tidelog.cli import main
main.run([])
print({"trio", "msgspec", "tidelog.cli.topic.topic"} & set(sys.modules))
"""
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert result.stdout == "plain,topic\nplain,token\nplain,top\nset()\n"
