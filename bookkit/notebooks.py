"""A notebook and its parameters: read, checked, written in their place, and run to a clean file."""

from __future__ import annotations

import ast
import contextlib
import json
import logging
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from bookkit.checking import fits
from bookkit.errors import BadValue, NotebookError, unknown
from bookkit.store import versions, write_whole

VERSIONS = ("attnlib", "torch", "transformers", "numpy", "scipy", "pandas", "matplotlib")
WIDTH = 80
"""Characters up to which the value of a parameter stays on one line."""
_PICTURE = re.compile(r"(data:[\w.+/-]+;base64,[A-Za-z0-9+/=]+)")
"""A picture within a page: its letters may spell a path by chance."""

# --- parameters -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Parameter:
    """One line of a notebook's parameters cell."""

    name: str
    default: Any
    type: str
    help: str


def notebook_parameters(path: str | Path) -> dict[str, Parameter]:
    """What a notebook can be asked to do: the lines of the cell tagged `parameters`.

    Read as Python, so that `int | None`, values of many lines and comments are understood.
    """
    source = _parameters_cell(_existing(path))
    found = {}
    for name, annotation, value, (_, end) in _assignments(source):
        comment = source.encode()[end:].partition(b"\n")[0].decode().partition("#")[2]
        try:
            default = ast.literal_eval(value)
        except ValueError:
            default, annotation = ast.unparse(value), annotation or "Any"
        inferred = "Any" if default is None else type(default).__name__
        found[name] = Parameter(name, default, annotation or inferred, comment.strip())
    return found


def validate(notebook: str | Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, if the notebook knows each by name and type."""
    known = notebook_parameters(notebook)
    checked = {}
    for name, value in parameters.items():
        if name not in known:
            raise unknown("parameter", name, known, f" of {Path(notebook).name}")
        wanted = known[name].type
        if not fits(value, wanted):
            given = type(value).__name__
            raise BadValue(
                f"parameter '{name}' of {Path(notebook).name} is {value!r} ({given}), expected "
                f"{wanted}. {known[name].help}".rstrip()
            )
        checked[name] = float(value) if wanted == "float" and type(value) is int else value
    return checked


def read_parameters(file: Path | None, pairs: Iterable[str]) -> dict[str, Any]:
    """Parameters of a yaml file, then of `name=value` pairs, whose values are yaml too."""
    found: dict[str, Any] = {}
    if file is not None:
        try:
            found = dict(yaml.safe_load(file.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, yaml.YAMLError) as error:
            fault = f"cannot be read as yaml ({type(error).__name__})"
            raise BadValue(f"'{file}' {fault}; expected lines such as `limit: 50`.") from None
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if Path(value).exists():  # the notebook runs elsewhere: a path is taken from here
            value = json.dumps(str(Path(value).resolve()))
        if not equals:
            raise BadValue(f"-p {pair} has no value; expected -p NAME VALUE.")
        try:
            found[name] = yaml.safe_load(value)
        except yaml.YAMLError:
            found[name] = value
    return found


def _parameters_cell(path: Path) -> str:
    """The source of the cell tagged `parameters`, empty if there is none."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        tagged = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
        return "".join(tagged[0]["source"]) if tagged else ""
    except (ValueError, KeyError, TypeError):
        raise NotebookError(f"{_shown(path)} is not a notebook: its content is damaged.") from None


def with_values(text: str, values: Mapping[str, Any]) -> str:
    """Source that assigns these values instead of its own; types and comments stay."""
    raw = text.encode()
    for name, _, _, (start, end) in reversed([*_assignments(text)]):
        if name in values:
            room = WIDTH - (start - raw.rfind(b"\n", 0, start) - 1)
            raw = raw[:start] + _written(values[name], room).encode() + raw[end:]
    return raw.decode()


def _assignments(text: str) -> Iterator[tuple[str, str, ast.expr, tuple[int, int]]]:
    """Name, annotation, value, and where in the encoded text the value starts and ends."""
    lines = text.encode().splitlines(keepends=True)
    starts = [0, *accumulate(map(len, lines))]
    for node in ast.parse(text).body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=kind, value=ast.expr() as value
            ):
                annotation = ast.unparse(kind)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                annotation = ""
            case _:
                continue
        start = starts[value.lineno - 1] + value.col_offset
        end = starts[(value.end_lineno or 0) - 1] + (value.end_col_offset or 0)
        yield name, annotation, value, (start, end)


def _written(value: Any, room: int) -> str:
    """A value as Python source, with double quotes; a long dictionary has a line for each key."""
    from papermill.translators import PythonTranslator

    line = str(PythonTranslator.translate(value))
    if not isinstance(value, dict) or len(line) <= room:
        return line
    items = (f"    {_written(key, WIDTH)}: {_written(one, WIDTH)},\n" for key, one in value.items())
    return "{\n" + "".join(items) + "}"


# --- runs -----------------------------------------------------------------------------------------


def run_notebook(notebook: str | Path, parameters: Mapping[str, Any], out: str | Path) -> Path:
    """Execute a notebook into `out`, with these parameters in the place of its defaults.

    What was run (parameters, seconds, versions) stands in the metadata of the file. If a cell
    fails, the file is kept with the error in it.
    """
    import nbformat
    from nbformat.v4.rwbase import split_lines

    source, target = _existing(notebook), Path(out)
    checked = validate(source, parameters)
    began = time.perf_counter()
    book, failure = _execute(source, checked)
    for cell in book.cells:
        if "parameters" in cell.metadata.get("tags", []):
            cell.source = with_values(cell.source, checked)
    record = {
        "notebook": source.name,
        "parameters": checked,
        "seconds": round(time.perf_counter() - began, 1),
        "versions": versions(VERSIONS),
    }
    lines = split_lines(nbformat.from_dict(_cleaned(book, record)))
    write_whole(target, (json.dumps(lines, indent=1, ensure_ascii=False) + "\n").encode())
    if failure:
        raise NotebookError(f"{failure} See {_shown(target)}.")
    return target


ADDED = {"injected-parameters", "papermill-error-cell-tag"}
"""Tags of the cells that papermill adds; the values are shown in the parameters cell itself."""


def _execute(source: Path, parameters: Mapping[str, Any]) -> tuple[Any, str]:
    """The notebook that papermill has run in this very Python; and what stopped it, or nothing.

    The kernel is this interpreter, whatever kernels the machine has, and its IPython folder is
    empty, so that no start-up file of the reader changes a result.
    """
    import nbformat
    from jupyter_client.kernelspec import KernelSpecManager
    from jupyter_client.manager import AsyncKernelManager
    from nbclient.exceptions import DeadKernelError
    from papermill import execute_notebook
    from papermill.exceptions import PapermillExecutionError

    failure = ""
    logging.getLogger("papermill").setLevel(logging.CRITICAL)  # what matters it raises
    packages = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    with (
        tempfile.TemporaryDirectory(prefix="attnlib-run-") as folder,
        environment(
            PYTHONPATH=os.pathsep.join(filter(None, packages)),  # of this checkout first
            JUPYTER_RUNTIME_DIR=str(Path(folder) / "runtime"),
            IPYTHONDIR=str(Path(folder) / "ipython"),
            PYDEVD_DISABLE_FILE_VALIDATION="1",
        ),
    ):
        written = Path(folder) / "executed.ipynb"
        kernel = AsyncKernelManager(
            kernel_spec_manager=KernelSpecManager(kernel_dirs=[]),
            connection_file=str(Path(folder) / "connection.json"),
        )
        try:
            execute_notebook(
                str(source.resolve()),
                str(written),
                parameters=dict(parameters),
                kernel_name="python3",
                language="python",
                progress_bar={"leave": False, "disable": not sys.stderr.isatty()},
                cwd=str(source.resolve().parent),
                km=kernel,
                extra_arguments=["--IPKernelApp.log_level=ERROR"],
            )
        except PapermillExecutionError as error:
            said = f"{error.ename}: {error.evalue}".strip().splitlines()[0]
            failure = f"failed: {said}"
        except DeadKernelError:
            failure = "ended its Python: out of memory?"
        book = nbformat.read(written, as_version=4)
    book.cells = [cell for cell in book.cells if not ADDED & set(cell.metadata.get("tags", []))]
    last = 0
    for number, cell in enumerate(book.cells, start=1):
        told = cell.metadata.pop("papermill", {})
        if cell.cell_type == "code" and told.get("duration") is not None:
            cell.metadata["seconds"] = round(told["duration"], 2)
        if told.get("status") in ("failed", "running", "completed"):
            last = number
    return book, f"cell {last} of {source.name} {failure}" if failure else ""


@contextlib.contextmanager
def environment(**changes: str) -> Iterator[None]:
    """Environment variables that are changed for a while."""
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _existing(path: str | Path) -> Path:
    path = Path(path)
    if not path.is_file() or path.suffix != ".ipynb":
        raise NotebookError(f"{_shown(path)} is not a notebook. Give the path of an .ipynb file.")
    return path


def _shown(path: Path) -> str:
    """A path as a person here would type it."""
    with contextlib.suppress(ValueError):
        return str(path.resolve().relative_to(Path.cwd()))
    return str(path)


def _cleaned(book: Any, record: Mapping[str, Any]) -> Any:
    """The executed notebook without the traces of the machine that ran it."""
    kept = {k: v for k, v in book.metadata.items() if k in ("widgets", "mystnb")}
    book.metadata = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
        **kept,
        "attnlib": record,
    }
    for cell in book.cells:
        if cell.cell_type == "code":
            told = [output for output in cell.outputs if not _is_debris(output)]
            cell.outputs = [_portable(_settled(output)) for output in told]
    return book


def _is_debris(output: dict) -> bool:
    """Warnings, log lines and progress bars: of use while the run lasts, not in a chapter."""
    if output["output_type"] == "stream":
        return output["name"] == "stderr"
    plain = "".join(output.get("data", {}).get("text/plain", ""))
    return bool(re.search(r"\d+%\||\d+it \[|━{3,}", plain))


def _settled(output: dict) -> dict:
    """Text as a terminal would show it in the end: a carriage return starts the line again."""
    if output["output_type"] == "stream":
        lines = "".join(output["text"]).split("\n")
        output["text"] = "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in lines)
    return output


def _portable(value: Any) -> Any:
    """The same output without any absolute path of this machine."""
    if isinstance(value, dict):
        # An image in base64 may hold "/tmp" by chance; SVG is text.
        keep = {k for k in value if k.startswith("image/") and k != "image/svg+xml"}
        return {k: item if k in keep else _portable(item) for k, item in value.items()}
    if isinstance(value, list):
        return [_portable(item) for item in value]
    if not isinstance(value, str):
        return value
    parts = _PICTURE.split(value)
    return "".join(part if i % 2 else _without_places(part) for i, part in enumerate(parts))


def _without_places(text: str) -> str:
    # From the start of a word only: tried at every letter, long words cost their square.
    text = re.sub(r"(?<!\S)\S*ipykernel_\d+[/\\]\d+\.py", "cell", text)
    for path, name in _places():
        text = text.replace(path + os.sep, f"{name}/" if name else "").replace(path, name or ".")
    return text


def _places() -> list[tuple[str, str]]:
    """Folders of this machine and what to call them, the longest first."""
    named = {
        str(Path(__file__).parents[1]): "",
        sys.prefix: "env",
        sys.base_prefix: "python",
        str(Path.home()): "~",
        tempfile.gettempdir(): "tmp",
        os.environ.get("ATTNLIB_CACHE", ""): "$ATTNLIB_CACHE",
        os.environ.get("ATTNLIB_MIRROR", ""): "$ATTNLIB_MIRROR",
    }
    both = {str(Path(path).resolve()): name for path, name in named.items() if path} | named
    usable = ((path, name) for path, name in both.items() if len(path) > 3)
    return sorted(usable, key=lambda pair: -len(pair[0]))
