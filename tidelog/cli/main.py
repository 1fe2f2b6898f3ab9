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
from typing import cast

import click

from tidelog.cli.lazy_group import LazyCommand, LazyGroup

_FAILURE = 1
_USAGE = 2
_INTERRUPTED = 128 + signal.SIGINT
_BROKEN_PIPE = 128 + signal.SIGPIPE

COMMANDS = {
    "serve": LazyCommand("tidelog.cli.serve.serve", "serve", "Run a broker."),
    "topic": LazyCommand(
        "tidelog.cli.topic.topic", "topic", "Create, inspect, change, delete topics."
    ),
    "produce": LazyCommand(
        "tidelog.cli.produce", "produce", "Produce lines to a topic, each as a record."
    ),
    "consume": LazyCommand(
        "tidelog.cli.consume", "consume", "Print the records of a topic, one per line."
    ),
    "queue": LazyCommand(
        "tidelog.cli.queue.queue", "queue", "Create, inspect, change, delete queues."
    ),
    "group": LazyCommand(
        "tidelog.cli.group.group", "group", "Inspect, move, delete consumer groups."
    ),
    "transaction": LazyCommand("tidelog.cli.transaction", "transaction", "List transactions."),
    "cluster": LazyCommand(
        "tidelog.cli.cluster.cluster",
        "cluster",
        "Show and change the cluster, elect leaders, move replicas.",
    ),
    "broker": LazyCommand(
        "tidelog.cli.broker.broker",
        "broker",
        "Show broker settings; drain, replace, unregister brokers.",
    ),
    "log": LazyCommand(
        "tidelog.cli.log.log", "log", "Dump, verify, repair the files of a stopped broker."
    ),
    "demo": LazyCommand("tidelog.cli.demo", "demo", "Run a demonstration on throwaway data."),
}

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
click.version_option(package_name="tidelog", message="tidelog %(version)s")(tidelog)


def main() -> None:
    """Run the command that the process was started with, and end the process."""
    _open_what_is_closed()
    sys.exit(run(sys.argv[1:]))


def _open_what_is_closed() -> None:
    """Let what is written to a closed output go nowhere, instead of into the next socket."""
    for name, descriptor in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, "w"))


def run(arguments: Sequence[str], command: click.Command = tidelog) -> int:
    """Run a command and return the exit status."""
    if not __debug__:
        _complain("tidelog keeps its assertions: run it without python -O and PYTHONOPTIMIZE")
        return _FAILURE
    try:
        status = command.main(list(arguments), prog_name="tidelog", standalone_mode=False)
        sys.stdout.flush()
    except SystemExit as ended:
        # Click ends like this when it finds that nobody reads the output.
        return _stop_writing() if ended.code else 0
    except BaseException as error:  # noqa: BLE001 - what is not known is raised again
        unreadable = [each for each in arguments if not _is_text(each)]
        if unreadable and isinstance(_first_of(error), UnicodeEncodeError):
            _complain(f"the argument {unreadable[0]!r} is no text in UTF-8")
            return _USAGE
        return _status_of(error)
    return status if isinstance(status, int) else 0


def _is_text(argument: str) -> bool:
    """Return whether an argument was given in UTF-8: Python keeps what was not as surrogates."""
    try:
        argument.encode()
    except UnicodeEncodeError:
        return False
    return True


def _status_of(error: BaseException) -> int:
    """Say what went wrong, and return the exit status; a defect is raised again."""
    cause = _first_of(error)
    if isinstance(cause, (click.Abort, KeyboardInterrupt)):
        return _INTERRUPTED
    if isinstance(cause, BrokenPipeError):
        return _stop_writing()
    if isinstance(cause, click.exceptions.Exit):
        return cause.exit_code
    if isinstance(cause, click.ClickException):
        _show(cause)
        return cause.exit_code
    # Not at the top: it costs 40 ms, and `--help` needs no errors.
    from tidelog.cli.errors import reason_of  # noqa: PLC0415

    reason = reason_of(cause)
    if reason is None:
        raise error
    _complain(reason)
    return _FAILURE


def _first_of(error: BaseException) -> BaseException:
    """Return the error, or the first one of a group, an interruption before all others."""
    if not isinstance(error, BaseExceptionGroup):
        return error
    group = cast("BaseExceptionGroup[BaseException]", error)
    found = [_first_of(member) for member in group.exceptions]
    return next((each for each in found if isinstance(each, KeyboardInterrupt)), found[0])


def _show(error: click.ClickException) -> None:
    """Say what is wrong with how a command was called."""
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        error.show()
        return
    if isinstance(error, click.UsageError) and error.ctx is not None:
        command = error.ctx.command_path
        click.echo(f"{error.ctx.get_usage()}\nTry '{command} --help' for help.\n", err=True)
    _complain(error.format_message())


def _complain(message: str) -> None:
    """Write one line to standard error."""
    line = " ".join(message.split())
    with suppress(BrokenPipeError):
        click.echo(f"{click.style('error:', fg='red', bold=True)} {line}", err=True)


def _stop_writing() -> int:
    """Let nothing more be written to standard output, not even at the end of the process."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)
    return _BROKEN_PIPE
