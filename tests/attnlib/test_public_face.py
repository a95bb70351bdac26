"""What `attnlib` offers at its top: lazy, documented, and every example of it runs."""

from __future__ import annotations

import ast
import doctest
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import attnlib

HEAVY = ("torch", "transformers", "pandas", "matplotlib", "numpy", "scipy", "numba", "spacy")


def imported(program: str) -> set[str]:
    """The heavy modules that a fresh interpreter has loaded after a program."""
    told = f"print(*(m for m in {HEAVY!r} if m in sys.modules), file=sys.stderr)"
    call = [sys.executable, "-c", f"{program}\nimport sys\n{told}"]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    return set(done.stderr.split())


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported("import attnlib; from attnlib import plots") == set()
    assert "torch" in imported("from attnlib import load_encoder")  # the test can fail


def test_help_imports_nothing_heavy() -> None:
    """The commands of the book and of the experiments come through entry points."""
    call = "import sys; sys.argv = ['attnlib', '--help']\nfrom attnlib.cli import main\n"
    assert imported(f"{call}try: main()\nexcept SystemExit: pass") == set()


def test_entry_points_of_commands_import_nothing_heavy() -> None:
    assert imported("import bookkit.commands, experiments.commands") == set()


@pytest.mark.parametrize("name", ["attnlib", *attnlib.__all__])
def test_examples_of_the_docstrings_run(name: str) -> None:
    found: Any = attnlib if name == "attnlib" else getattr(attnlib, name)
    test = doctest.DocTestParser().get_doctest(found.__doc__ or "", {}, name, None, None)
    assert test.examples, f"{name} has no example"
    result = doctest.DocTestRunner(verbose=False).run(test)
    assert result.failed == 0


def test_the_names_are_the_same_for_a_type_checker() -> None:
    tree = ast.parse(Path(attnlib.__file__).read_text())
    guarded = next(
        node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node)
    )
    names = {
        one.name for node in guarded.body if isinstance(node, ast.ImportFrom) for one in node.names
    }
    assert names == set(attnlib.__all__)
    assert 20 <= len(names) <= 25


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'meassure'"):
        _ = attnlib.meassure  # type: ignore[attr-defined]
    assert set(attnlib.__all__) <= set(dir(attnlib))
