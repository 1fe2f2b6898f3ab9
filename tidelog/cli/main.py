"""The entry point of the command `tidelog`: commands by name, and what becomes of errors.

Exit status: 0 success, 2 wrong use, 130 interrupted, 141 when nobody reads the output any more,
and 1 with one line on standard error for everything else. Only a defect of tidelog shows a
traceback.
"""

import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version

import click

from tidelog.cli.lazy_group import LazyCommand, LazyGroup

_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + signal.SIGPIPE

COMMANDS = {
    "serve": LazyCommand("tidelog.cli.serve", "serve", "Run a broker."),
    "topic": LazyCommand("tidelog.cli.topic", "topic", "Create, inspect, change, delete topics."),
    "produce": LazyCommand("tidelog.cli.produce", "produce", "Write lines to a topic."),
    "consume": LazyCommand("tidelog.cli.consume", "consume", "Print the records of a topic."),
    "config": LazyCommand("tidelog.cli.config", "config", "Show the settings of a broker."),
    "demo": LazyCommand("tidelog.cli.demo", "demo", "The whole story, on throwaway data."),
}


def _show_version(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    del param
    if value and not ctx.resilient_parsing:
        click.echo(f"tidelog {version('tidelog')}")
        ctx.exit()


tidelog = LazyGroup(
    "tidelog",
    lazy=COMMANDS,
    help="""A log broker: topics that can be streamed, worked through and replayed.

    \b
    To begin with:
      tidelog demo                            see it survive a kill, in seconds
      tidelog serve                           run a broker on 127.0.0.1:8433
      tidelog topic create orders
      echo 'hello' | tidelog produce orders
      tidelog consume orders --from-beginning
    """,
)
tidelog.params.append(
    click.Option(
        ["--version"],
        is_flag=True,
        expose_value=False,
        is_eager=True,
        callback=_show_version,
        help="Show the version and exit.",
    )
)


def main() -> None:
    """Run the command that the process was started with, and end the process."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run a command and return the exit status."""
    if not __debug__:
        return _complain(
            "tidelog keeps its assertions: run it without python -O and PYTHONOPTIMIZE"
        )
    try:
        status = tidelog.main(list(arguments), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:
        # Click ends like this when it finds that nobody reads the output.
        return _stop_writing() if ended.code else 0
    except BaseException as error:  # noqa: BLE001 - what is not known is raised again
        return _status_of(error)
    return status if isinstance(status, int) else 0


def _status_of(error: BaseException) -> int:
    """Say what went wrong, and return the exit status; a defect is raised again."""
    cause = _first_of(error)
    if isinstance(cause, (click.Abort, KeyboardInterrupt)):
        return _INTERRUPTED
    if isinstance(cause, BrokenPipeError):
        return _stop_writing()
    if isinstance(cause, click.ClickException):
        cause.show()
        return cause.exit_code
    if isinstance(cause, click.exceptions.Exit):
        return cause.exit_code
    if isinstance(cause, OSError):
        where = f"{cause.filename}: " if cause.filename else ""
        return _complain(f"{where}{cause.strerror or cause}")
    # Imported this late because most commands that fail have imported it already.
    from wire.errors import TidelogError

    if isinstance(cause, TidelogError):
        return _complain("; ".join((str(cause), *getattr(cause, "__notes__", ()))))
    raise error


def _first_of(error: BaseException) -> BaseException:
    """Return the error, or the first one of a group, an interruption before all others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    found = [_first_of(member) for member in error.exceptions]
    return next((each for each in found if isinstance(each, KeyboardInterrupt)), found[0])


def _complain(message: str) -> int:
    """Write one line to standard error; return the exit status of a failure."""
    line = " ".join(message.split())
    with suppress(BrokenPipeError):
        click.echo(f"{click.style('error:', fg='red', bold=True)} {line}", err=True)
    return 1


def _stop_writing() -> int:
    """Let nothing more be written to standard output, not even at the end of the process."""
    with suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return _BROKEN_PIPE
