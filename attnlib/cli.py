"""The `attnlib` command: each command is a call into the package."""

from __future__ import annotations

import sys

import typer

from attnlib.commands import heads, listing, measure
from attnlib.commands.shared import added

app = typer.Typer(
    name="attnlib",
    help="What attention heads do: fetch models and texts, measure heads, build the book.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for part in (listing.app, measure.app, heads.app, *added("attnlib.commands")):
    app.registered_commands += part.registered_commands

INTERRUPTED = 130


def main() -> None:
    """Run a command; what the user can mend is one sentence on stderr and exit code 2.

    An error that the user can mend says so by its class, which has an `exit_code`: the packages
    that add commands have errors of their own.
    """
    try:
        app(_joined_parameters(sys.argv[1:]))
    except SystemExit as stop:
        if stop.code == INTERRUPTED:  # the command line library has caught Ctrl-C
            print("Interrupted; nothing was left half written.", file=sys.stderr)
        raise
    except Exception as error:
        code = getattr(type(error), "exit_code", None)
        if code is None:
            raise
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(code)


def _joined_parameters(words: list[str]) -> list[str]:
    """`-p name value` becomes `-p name=value`, which the parser knows."""
    joined = list(words)
    for at in range(len(joined) - 2, 0, -1):
        if joined[at - 1] == "-p" and "=" not in joined[at]:
            joined[at : at + 2] = [f"{joined[at]}={joined[at + 1]}"]
    return joined
