"""What is made from fetched files: a BERT folder from ONNX, a part of a table, joined archives."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from attnlib.data.archives import extract

E5_CONFIG = Path(__file__).with_name("e5_small_config.json")


def bert_tensors(onnx_file: Path) -> dict[str, np.ndarray]:
    """The weights of an exported BERT under their names in transformers, pooler left out.

    The exporter kept the names of embeddings, biases and LayerNorms but not of the matrices: each
    of these is the constant of the MatMul whose result the named bias is added to, transposed.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file)).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    maker = {output: node for node in graph.node for output in node.output}
    tensors = {
        name: numpy_helper.to_array(tensor)
        for name, tensor in constants.items()
        if name.startswith(("embeddings.", "encoder.")) and "position_ids" not in name
    }
    for node in graph.node:
        biases = [name for name in node.input if name.endswith(".bias") and name in constants]
        if node.op_type != "Add" or not biases:
            continue
        others = [name for name in node.input if name != biases[0]]
        product = maker.get(others[0]) if others else None
        if product is not None and product.op_type == "MatMul" and product.input[1] in constants:
            matrix = numpy_helper.to_array(constants[product.input[1]])
            turned = matrix.T.copy()  # safetensors writes the memory of a view as it is
            tensors[biases[0].removesuffix("bias") + "weight"] = turned
    return tensors


def e5_small(scratch: Path, folder: Path, _: Mapping[str, str]) -> None:
    """`e5-small.onnx` (+ `.data`) in `scratch` -> config.json and model.safetensors in `folder`."""
    from safetensors.numpy import save_file

    (folder / "config.json").write_bytes(E5_CONFIG.read_bytes())
    tensors = bert_tensors(scratch / "e5-small.onnx")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})


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
    "e5-small": e5_small,
    "msrpar": msrpar,
    "joined-zip": joined_zip,
}
