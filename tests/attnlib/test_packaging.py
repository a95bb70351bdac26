"""pyproject.toml, constraints.txt, environment.yml and the Makefile tell one story."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from functools import partial
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parents[2]
PROJECT, BOOK = (
    tomllib.loads((ROOT / place / "pyproject.toml").read_text())["project"]
    for place in ("", "experiments")
)


def declared() -> dict[str, Requirement]:
    """Every requirement of the two distributions and their extras, by canonical name."""
    lines: list[str] = []
    for project in (PROJECT, BOOK):
        extras = project["optional-dependencies"].values()
        lines += [*project["dependencies"], *(line for extra in extras for line in extra)]
    found = {canonicalize_name(Requirement(line).name): Requirement(line) for line in lines}
    return {name: requirement for name, requirement in found.items() if name != "attnlib"}


def pinned() -> dict[str, Version]:
    """Every pin of constraints.txt, by canonical name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def environment() -> tuple[list[str], list[str]]:
    """The conda part and the pip part of environment.yml."""
    entries = yaml.safe_load((ROOT / "environment.yml").read_text())["dependencies"]
    (pip,) = [entry["pip"] for entry in entries if isinstance(entry, dict)]
    return [entry for entry in entries if isinstance(entry, str)], pip


def test_every_dependency_is_pinned_inside_its_range() -> None:
    pins = pinned()
    faults = {
        name: str(requirement.specifier)
        for name, requirement in declared().items()
        if name not in pins or not requirement.specifier.contains(pins[name], prereleases=True)
    }
    assert faults == {}


def test_environment_agrees_with_pyproject() -> None:
    conda, pip = environment()
    ranges, pins = declared(), pinned()
    for line in (line for line in pip if not line.startswith("-")):
        wanted = Requirement(line)
        name = canonicalize_name(wanted.name)
        assert name in ranges, f"{name} is in environment.yml and not in pyproject.toml"
        assert str(wanted.specifier) == f"=={pins[name]}"
    assert set(conda) == {"python=3.11", "pip"}
    assert PROJECT["requires-python"] == ">=3.11"


def test_environment_installs_the_package_under_the_constraints() -> None:
    _, pip = environment()
    assert "-c constraints.txt" in pip
    library, book = [line for line in pip if line.startswith("-e ")]
    assert book == "-e ./experiments"
    extras = re.search(r"\[(.*)\]", library)
    assert extras
    assert set(extras[1].split(",")) <= set(PROJECT["optional-dependencies"])


def test_make_installs_the_same_extras_and_torch_first() -> None:
    makefile = (ROOT / "Makefile").read_text()
    both = "-e '.[dev]' -e ./experiments"
    assert makefile.index("install --quiet $(TORCH)") < makefile.index(both)
    assert str(pinned()["torch"]) == "2.13.0"


def test_pins_carry_no_local_suffix() -> None:
    assert [name for name, version in pinned().items() if version.local] == []


@pytest.mark.slow
def test_the_wheel_works_away_from_the_checkout(tmp_path: Path) -> None:
    """Built from pyproject, installed in a new environment, it has its data and its command."""
    run = partial(subprocess.run, check=True, capture_output=True, text=True, cwd=tmp_path)
    source = tmp_path / "source"  # a build leaves traces where it is made
    skip = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "attnlib", source / "attnlib", ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    run([sys.executable, "-m", "build", "--wheel", "--outdir", str(tmp_path), str(source)])
    venv = tmp_path / "venv"
    run([sys.executable, "-m", "venv", "--without-pip", str(venv)])
    (site,) = venv.glob("lib/python*/site-packages")
    (wheel,) = tmp_path.glob("attnlib-*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    run([*install, "--target", str(site), str(wheel)])
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    script = "import attnlib, sys; print(attnlib.__file__); from attnlib.cli import main; main()"
    answered = run([str(venv / "bin" / "python"), "-I", "-c", script, "metrics"])
    assert answered.stdout.startswith(str(site))
    assert "mass_to_previous" in answered.stdout
    packed = {str(path.relative_to(site)) for path in (site / "attnlib").rglob("*")}
    kept = subprocess.run(["git", "ls-files", "attnlib"], cwd=ROOT, capture_output=True, text=True)
    assert set(kept.stdout.split()) <= packed, "the wheel lacks a file of the package"
