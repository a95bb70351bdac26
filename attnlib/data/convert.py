"""What is made from fetched files: a BERT folder from ONNX, a part of a table, joined archives."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from attnlib.data.archives import extract


def onnx_tensors(onnx_file: Path) -> dict[str, np.ndarray]:
    """The weights of an exported encoder under their names in transformers, heads on top left out.

    The exporter kept the names of embeddings, biases and LayerNorms but not of the matrices: each
    of these is the constant of the product whose result the named bias is added to, transposed.
    Weights of 8 bits become 32 again: (q - zero point) * scale, one scale for a matrix.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file)).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    maker = {output: node for node in graph.node for output in node.output}

    def array(name: str) -> np.ndarray:
        whole = name.removesuffix("_quantized")
        if whole == name:
            return numpy_helper.to_array(constants[name])
        q, zero, scale = (
            numpy_helper.to_array(constants[f"{whole}_{part}"]).astype(np.float32)
            for part in ("quantized", "zero_point", "scale")
        )
        return (q - zero) * scale

    def product(name: str) -> Any:
        """The multiplication that a number comes from, behind changes of type and scale."""
        node = maker.get(name)
        if node is None or node.op_type in ("MatMul", "MatMulInteger"):
            return node
        if node.op_type not in ("Cast", "Mul"):
            return None
        found = [made for made in map(product, node.input) if made is not None]
        return found[0] if found else None

    tensors, plain_names = {}, {}
    for name in constants:
        if name.endswith(("_scale", "_zero_point", "position_ids")):
            continue
        whole = name.removesuffix("_quantized")
        plain = re.sub(r"^(bert|distilbert)\.", "", whole)
        if plain.startswith(("embeddings.", "encoder.", "transformer.")):
            tensors[plain] = array(name)
            plain_names[name] = plain
    for node in graph.node:
        biases = [one for one in node.input if plain_names.get(one, "").endswith(".bias")]
        if node.op_type != "Add" or not biases:
            continue
        made = product(next(one for one in node.input if one != biases[0]))
        if made is not None and made.input[1] in constants:
            turned = array(made.input[1]).T.copy()  # safetensors writes memory as it is
            tensors[plain_names[biases[0]].removesuffix("bias") + "weight"] = turned
    return tensors


def onnx_model(scratch: Path, folder: Path, _: Mapping[str, str]) -> None:
    """`*.onnx` in `scratch` -> model.safetensors in `folder`, and the settings that are ours."""
    from safetensors.numpy import save_file

    (file,) = scratch.glob("*.onnx")
    for ours in Path(__file__).parent.glob(f"{file.stem}.*.json"):
        shutil.copyfile(ours, folder / ours.name.removeprefix(f"{file.stem}."))
    save_file(onnx_tensors(file), folder / "model.safetensors", metadata={"format": "pt"})


def msrpar(scratch: Path, folder: Path, names: Mapping[str, str]) -> None:
    """The rows of the STS benchmark that come from MSRpar (MRPC's news pairs), byte for byte."""
    for name in names:
        with open(scratch / name, "rb") as rows, open(folder / name, "xb") as out:
            out.writelines(row for row in rows if row.split(b"\t")[1:2] == [b"MSRpar"])


def joined_zip(scratch: Path, folder: Path, names: Mapping[str, str]) -> None:
    """The parts `*.zip.001`, `.002` ... in `scratch`, put together; the named members of that."""
    whole = scratch / "joined.zip"
    with open(whole, "xb") as out:
        for part in sorted(scratch.glob("*.zip.[0-9][0-9][0-9]")):
            with open(part, "rb") as stream:
                shutil.copyfileobj(stream, out, 1 << 20)
            part.unlink()
    extract(whole, {member: name for name, member in names.items()}, folder)


# name in assets.toml -> what makes it from (scratch folder with the inputs, target folder,
# name to make -> where assets.toml says it is from)
CONVERTERS: dict[str, Callable[[Path, Path, Mapping[str, str]], None]] = {
    "onnx": onnx_model,
    "msrpar": msrpar,
    "joined-zip": joined_zip,
}
