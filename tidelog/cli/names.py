"""Names of topics, queues and groups on the command line, and their completion in a shell."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Literal, final

import click
import trio
from click.shell_completion import CompletionItem

from tidelog.cli.connected import broker_address, given_profile
from tidelog.cli.usage import WrongUse
from tidelog.client.client import Client, connect
from tidelog.wire.errors import TidelogError

Kind = Literal["topic", "queue", "group"]

_COMPLETION_S: Final = 0.3
"""Seconds that a completion may wait for a broker."""
_COMPLETIONS_MAX: Final = 200


@final
class Name(click.Argument):
    """The name of a topic, queue or group, which may stand after an option as well.

    `kafka-topics --describe --topic orders` has it there: `tidelog topic describe --topic orders`
    is `tidelog topic describe orders`.
    """

    def __init__(
        self,
        param_decls: Sequence[str],
        *,
        kind: Kind,
        is_new: bool = False,
        **settings: Any,  # noqa: ANN401  (those of click)
    ) -> None:
        """Accept `--topic` and so on in place of the argument; complete names unless `is_new`."""
        super().__init__(param_decls, **settings)
        self.kind: Kind = kind
        """Kind of the named thing."""
        self._is_new = is_new
        self._word = f"--{kind}"
        # Click's parser needs an option for the errors of a missing value.
        self._option = click.Option([self._word], expose_value=False)

    def add_to_parser(self, parser: Any, ctx: click.Context) -> None:  # noqa: ANN401  (private to click)
        """Let the parser accept both forms."""
        super().add_to_parser(parser, ctx)
        parser.add_option(self._option, [self._word], dest=self._word)

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        """Take the name from the option if it is there.

        Raises:
            WrongUse: There are two names.
        """
        named = opts.get(self._word)
        if named is not None:
            placed = opts.get(self.name)
            if isinstance(placed, str) and placed != named:
                word = self.make_metavar(ctx)
                raise WrongUse(f"{self._word} is {named!r}, and {word} is {placed!r}: give one")
            opts = {**opts, self.name: named}
        return super().handle_parse_result(ctx, opts, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the names that begin so; none if no broker answers within 0.3 s."""
        if self._is_new:
            return []
        try:
            ask = partial(completed_names, profile=given_profile(ctx))
            names = trio.run(ask, broker_address(ctx), self.kind, incomplete)
        except (TidelogError, OSError, WrongUse):
            return []
        return [CompletionItem(name) for name in names]


async def completed_names(
    broker: str, kind: Kind, prefix: str, *, profile: str | None = None
) -> list[str]:
    """Return the names that begin with `prefix`; none if the broker is slow."""
    with trio.move_on_after(_COMPLETION_S):
        async with connect(broker, profile=profile) as client:
            return await _listed(client, kind, prefix)
    return []


async def _listed(client: Client, kind: Kind, prefix: str) -> list[str]:
    if kind == "topic":
        return await client.admin.list_topics(prefix, limit=_COMPLETIONS_MAX)
    if kind == "queue":
        return await client.admin.list_queues(prefix, limit=_COMPLETIONS_MAX)
    groups = [each.group_id for each in await client.admin.list_groups()]
    return [each for each in groups if each.startswith(prefix)][:_COMPLETIONS_MAX]
