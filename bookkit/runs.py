"""Run one notebook with checked parameters, in this very Python, and leave a clean file behind."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import platform
import re
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import yaml

from attnlib.errors import AttnlibError, BadValue, UnknownName, did_you_mean
from bookkit.parametercells import with_values_in_place

KERNEL = "attnlib-run"
VERSIONS = ("attnlib", "torch", "transformers", "numpy", "scipy", "pandas", "matplotlib")
_PICTURE = re.compile(r"(data:[\w.+/-]+;base64,[A-Za-z0-9+/=]+)")
"""A picture within a page: its letters may spell a path by chance."""


class NotebookError(AttnlibError):
    """A notebook that is not there, cannot be read, or stopped in one of its cells."""


@dataclass(frozen=True)
class Parameter:
    """One line of a notebook's parameters cell."""

    name: str
    default: Any
    type: str
    help: str


def notebook_parameters(path: str | Path) -> dict[str, Parameter]:
    """What a notebook can be asked to do: the lines of the cell tagged `parameters`.

    Read as Python, because papermill's own reading passes over `int | None` without a word.
    """
    source = _parameters_cell(_existing(path))
    lines, found = source.splitlines(), {}
    for node in ast.parse(source).body:
        match node:
            case ast.AnnAssign(
                target=ast.Name(id=name), annotation=kind, value=ast.expr() as value
            ):
                wanted = ast.unparse(kind)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                wanted = ""
            case _:
                continue
        after = lines[(node.end_lineno or node.lineno) - 1][node.end_col_offset or 0 :]
        found[name] = _parameter(name, value, wanted, after.partition("#")[2].strip())
    return found


def validate(notebook: str | Path, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters, if the notebook knows each by name and type; papermill would only warn."""
    known = notebook_parameters(notebook)
    checked = {}
    for name, value in parameters.items():
        if name not in known:
            hint = did_you_mean(name, known)
            listed = ", ".join(known) or "none"
            raise UnknownName(
                f"parameter '{name}' of {Path(notebook).name}. {hint}It has: {listed}."
            )
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
            found = yaml.safe_load(file.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
            raise BadValue(
                f"'{file}' cannot be read as yaml ({type(error).__name__}); expected lines such "
                "as `limit: 50`."
            ) from None
        if not isinstance(found, dict):
            raise BadValue(f"'{file}' holds no parameters; expected lines such as `limit: 50`.")
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


def run_notebook(
    notebook: str | Path, parameters: Mapping[str, Any], out: str | Path, *, key: str = ""
) -> Path:
    """Execute a notebook into `out`.

    What was run (parameters, seconds, versions, and `key` if the caller caches by it) stands in
    the metadata of the file. If a cell fails, the file is kept with the error in it.
    """
    _require("papermill", "ipykernel")
    from papermill.exceptions import PapermillExecutionError

    source, target = _existing(notebook), Path(out)
    checked = validate(source, parameters)
    target.parent.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="attnlib-run-") as folder, _kernel(Path(folder)):
        written = Path(folder) / "executed.ipynb"
        try:
            _execute(source, written, checked)
            failure = None
        except PapermillExecutionError as error:
            failure = error
        book = json.loads(written.read_text(encoding="utf-8"))
    record = _record(source, checked, time.perf_counter() - began, key if failure is None else "")
    _write(_cleaned(book, record, checked), target)
    if failure is not None:
        said = f"{failure.ename}: {failure.evalue}".strip().splitlines()[0]
        cell = f"cell {failure.cell_index + 1}"
        raise NotebookError(f"{cell} of {source.name} failed: {said} See {_shown(target)}.")
    return target


def fits(value: object, annotation: str) -> bool:
    """Whether a value has the annotated type; an annotation we do not know accepts everything."""
    try:
        return _fits(value, ast.parse(annotation, mode="eval").body)
    except SyntaxError:
        return True


def _fits(value: object, node: ast.expr) -> bool:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _fits(value, left) or _fits(value, right)
        case ast.Constant(value=None):
            return value is None
        case ast.Subscript(value=ast.Name(id="Optional"), slice=inner):
            return value is None or _fits(value, inner)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=inner):
            return value in _literals(inner)
        case ast.Subscript(value=ast.Name(id="list" | "List"), slice=inner):
            return isinstance(value, list) and all(_fits(item, inner) for item in value)
        case ast.Subscript(value=ast.Name(id="dict" | "Dict"), slice=ast.Tuple(elts=[key, item])):
            return isinstance(value, dict) and all(
                _fits(k, key) and _fits(v, item) for k, v in value.items()
            )
        case ast.Name(id=name):
            return _fits_name(value, name)
    return True


def _fits_name(value: object, name: str) -> bool:
    if isinstance(value, bool):
        return name in ("bool", "Any", "object")
    plain: dict[str, tuple[type, ...]] = {
        **{"str": (str,), "int": (int,), "float": (int, float), "bool": (bool,)},
        **{"list": (list,), "dict": (dict,), "tuple": (list, tuple)},
    }
    return isinstance(value, plain[name]) if name in plain else True


def _literals(node: ast.expr) -> list[Any]:
    return [ast.literal_eval(item) for item in getattr(node, "elts", [node])]


def _parameters_cell(path: Path) -> str:
    """The source of the cell tagged `parameters`, empty if there is none."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        tagged = [c for c in cells if "parameters" in c["metadata"].get("tags", [])]
        return "".join(tagged[0]["source"]) if tagged else ""
    except (ValueError, KeyError, TypeError):
        raise NotebookError(f"{_shown(path)} is not a notebook: its content is damaged.") from None


def _parameter(name: str, value: ast.expr, wanted: str, told: str) -> Parameter:
    """A parameter with its default as a value, and the default's type where none was written."""
    try:
        default: Any = ast.literal_eval(value)
    except ValueError:
        default, wanted = ast.unparse(value), wanted or "Any"
    inferred = "Any" if default is None else type(default).__name__
    return Parameter(name, default, wanted or inferred, told)


def _require(*modules: str) -> None:
    """Say what to install when the package stands here without the tools of the book."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise NotebookError(f"{missing[0]} is not installed. Run `pip install 'attnlib[book]'`.")


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


@contextlib.contextmanager
def _quiet_papermill() -> Iterator[None]:
    """Silence papermill's log: what matters it raises."""
    import logging

    logger = logging.getLogger("papermill")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


@contextlib.contextmanager
def _kernel(folder: Path) -> Iterator[None]:
    """A kernel that is this interpreter with this attnlib, whatever kernels the machine has.

    Its IPython folder is empty, so that no start-up file of the reader changes a result.
    """
    spec = folder / "share" / "kernels" / KERNEL
    spec.mkdir(parents=True)
    package = str(Path(__file__).parents[1])
    path = os.pathsep.join(filter(None, [package, os.environ.get("PYTHONPATH", "")]))
    quiet = "--IPKernelApp.log_level=ERROR"
    argv = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}", quiet]
    told = {"argv": argv, "display_name": "attnlib", "language": "python"}
    (spec / "kernel.json").write_text(json.dumps({**told, "env": {"PYTHONPATH": path}}))
    changes = {
        "JUPYTER_PATH": str(folder / "share"),
        "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        "IPYTHONDIR": str(folder / "ipython"),
        "PYDEVD_DISABLE_FILE_VALIDATION": "1",
    }
    before = {name: os.environ.get(name) for name in changes}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _execute(source: Path, written: Path, parameters: Mapping[str, Any]) -> None:
    from papermill import execute_notebook

    bar = {"desc": source.stem, "leave": False, "disable": not sys.stderr.isatty()}
    with _quiet_papermill():
        execute_notebook(
            str(source.resolve()),
            str(written),
            parameters=dict(parameters),
            kernel_name=KERNEL,
            language="python",
            progress_bar=bar,
            cwd=str(source.resolve().parent),
        )


def _record(source: Path, parameters: Mapping[str, Any], seconds: float, key: str) -> dict:
    """What someone who finds the file needs to know about the run that made it."""
    told: dict[str, Any] = {"notebook": source.name, "parameters": dict(parameters)}
    return {**told, "seconds": round(seconds, 1), "versions": versions(), "key": key}


def versions() -> dict[str, str]:
    """The versions a result may depend on."""
    found = {"python": platform.python_version()}
    for name in VERSIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def _cleaned(book: dict, record: dict, parameters: Mapping[str, Any]) -> dict:
    """The executed notebook without the traces of the machine that ran it."""
    book["metadata"] = {
        "kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"},
        "language_info": {"name": "python"},
        **{k: v for k, v in book["metadata"].items() if k in ("widgets", "mystnb")},
        "attnlib": record,
    }
    for cell in book["cells"]:
        spent = cell["metadata"].pop("papermill", {}).get("duration")
        if spent is not None:
            cell["metadata"]["seconds"] = round(spent, 2)
        if cell["cell_type"] == "code":
            kept = (out for out in cell["outputs"] if not _is_debris(out))
            cell["outputs"] = [_portable(_settled(out)) for out in kept]
    book["cells"] = with_values_in_place(book["cells"], parameters)
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


def _write(book: dict, target: Path) -> None:
    """Write in one step, so that an interrupted run leaves no half file."""
    partial = target.with_name(f".{target.name}.{os.getpid()}")
    partial.write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    partial.replace(target)
