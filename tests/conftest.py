"""Shapes in annotations are checked under pytest; nothing here reaches the hub."""

from __future__ import annotations

import os
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
from jaxtyping import install_import_hook

SHAPED = ("attnlib.attention", "attnlib.metrics", "attnlib.measuring")
_hook = install_import_hook(SHAPED, "beartype.beartype")


@pytest.fixture(scope="session")
def e5_small():  # type: ignore[no-untyped-def]
    """The real 144-head model, loaded once."""
    from attnlib.models import load_encoder

    return load_encoder("e5-small")


@pytest.fixture
def run(monkeypatch, capsys):  # type: ignore[no-untyped-def]
    """Call the command as a shell would: (exit code, stdout, stderr)."""
    from attnlib import cli

    def call(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["attnlib", *map(str, words)])
        with pytest.raises(SystemExit) as stopped:
            cli.main()
        out, err = capsys.readouterr()
        return stopped.value.code or 0, out, err

    return call
