"""`python -m attnlib` is the `attnlib` command."""

from attnlib.cli import main

main()
