"""Wrong use that one line answers, and names that stand by position or after an option."""

from collections.abc import Mapping, Sequence
from typing import Any, final

import click


@final
class WrongUse(click.ClickException):
    """A command line that one line corrects, without the usage of the command."""

    exit_code = 2


@final
class Name(click.Argument):
    """The name of a topic, queue or group, which may stand after an option as well.

    `kafka-topics --describe --topic orders` has it there: `tidelog topic describe --topic orders`
    is `tidelog topic describe orders`.
    """

    def __init__(self, param_decls: Sequence[str], *, option: str, **settings: Any) -> None:  # noqa: ANN401
        """Accept `option` in place of the argument."""
        super().__init__(param_decls, **settings)
        # Click's parser needs an option for the errors of a missing value.
        self._option = click.Option([option], expose_value=False)
        self._word = option

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
