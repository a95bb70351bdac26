"""What is made from fetched files: a BERT folder from ONNX, a part of a table, joined archives."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnlib.data.archives import extract
from attnlib.errors import AssetError, ChecksumError

if TYPE_CHECKING:
    import numpy as np

# (name, dtype, shape, bytes) of every tensor of e5-small; see `tensor_digest`
E5_DIGEST = "9dbecdddaf8ba867a88f25cd5a7ebc4c0b173e678c8ffceac0ca3c9bfbd08028"

E5_CONFIG: dict[str, Any] = {
    "architectures": ["BertModel"],
    "attention_probs_dropout_prob": 0.1,
    "dtype": "float32",
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 384,
    "initializer_range": 0.02,
    "intermediate_size": 1536,
    "layer_norm_eps": 1e-12,
    "max_position_embeddings": 512,
    "model_type": "bert",
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 30522,
}

Tensors = dict[str, "np.ndarray"]


def bert_shapes(config: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of a BertModel without pooler."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "embeddings.word_embeddings.weight": (config["vocab_size"], hidden),
        "embeddings.position_embeddings.weight": (config["max_position_embeddings"], hidden),
        "embeddings.token_type_embeddings.weight": (config["type_vocab_size"], hidden),
        "embeddings.LayerNorm.weight": (hidden,),
        "embeddings.LayerNorm.bias": (hidden,),
    }
    dense = {
        "attention.self.query": (hidden, hidden),
        "attention.self.key": (hidden, hidden),
        "attention.self.value": (hidden, hidden),
        "attention.output.dense": (hidden, hidden),
        "intermediate.dense": (inner, hidden),
        "output.dense": (hidden, inner),
    }
    for layer in range(config["num_hidden_layers"]):
        for part, shape in dense.items():
            shapes[f"encoder.layer.{layer}.{part}.weight"] = shape
            shapes[f"encoder.layer.{layer}.{part}.bias"] = shape[:1]
        for part in ("attention.output.LayerNorm", "output.LayerNorm"):
            shapes[f"encoder.layer.{layer}.{part}.weight"] = (hidden,)
            shapes[f"encoder.layer.{layer}.{part}.bias"] = (hidden,)
    return shapes


def bert_tensors(onnx_file: Path) -> Tensors:
    """The weights of an exported BERT under their names in transformers, pooler left out.

    The exporter kept the names of embeddings, biases and LayerNorms but not of the matrices: each
    of these is the constant of the MatMul whose result the named bias is added to, transposed.
    """
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(onnx_file)).graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    maker = {output: node for node in graph.node for output in node.output}
    tensors: Tensors = {
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
            tensors[biases[0].removesuffix("bias") + "weight"] = matrix.T.copy()
    return tensors


def check_tensors(tensors: Tensors, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """All expected tensors with the right shape and type, nothing left over, every value finite."""
    import numpy as np

    missing, extra = sorted(set(shapes) - set(tensors)), sorted(set(tensors) - set(shapes))
    if missing or extra:
        raise AssetError(
            f"The converted model lacks {len(missing)} tensors ({', '.join(missing[:2]) or 'none'})"
            f" and has {len(extra)} unexpected ones ({', '.join(extra[:2]) or 'none'}); "
            "the ONNX file is not the pinned one. Fetch it again."
        )
    for name, shape in shapes.items():
        tensor = tensors[name]
        if tensor.shape != shape or tensor.dtype != np.float32:
            raise AssetError(
                f"{name} came out as {tensor.dtype} {list(tensor.shape)}, expected float32 "
                f"{list(shape)}; the ONNX file is not the pinned one. Fetch it again."
            )
        if not np.isfinite(tensor).all():
            raise AssetError(f"{name} has values that are not finite; fetch the ONNX file again.")


def tensor_digest(tensors: Tensors) -> str:
    """A sha256 over name, dtype, shape and bytes of all tensors, independent of any file format."""
    import numpy as np

    digest = hashlib.sha256()
    for name in sorted(tensors):
        tensor = np.ascontiguousarray(tensors[name])
        digest.update(f"{name}\0{tensor.dtype.str}\0{list(tensor.shape)}\0".encode())
        digest.update(tensor.tobytes())
    return digest.hexdigest()


def write_safetensors(tensors: Tensors, path: Path) -> None:
    """A float32 safetensors file whose bytes depend on the tensors only.

    The library's own writer may order its header differently in another version; then the file
    could not be pinned by sha256. The format is a length, a JSON header and the data.
    """
    import numpy as np

    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    start = 0
    for name in sorted(tensors):
        stop = start + 4 * math.prod(tensors[name].shape)
        header[name] = {
            "dtype": "F32",
            "shape": list(tensors[name].shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "xb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(tensors):
            out.write(np.ascontiguousarray(tensors[name], dtype="<f4").tobytes())


def e5_small(scratch: Path, folder: Path, _: Mapping[str, str]) -> None:
    """`e5-small.onnx` (+ `.data`) in `scratch` -> config.json and model.safetensors in `folder`."""
    tensors = bert_tensors(scratch / "e5-small.onnx")
    check_tensors(tensors, bert_shapes(E5_CONFIG))
    found = tensor_digest(tensors)
    if found != E5_DIGEST:
        raise ChecksumError(
            f"The converted e5-small has digest {found[:8]}…, expected {E5_DIGEST[:8]}…. "
            "Nothing was kept; run `attnlib fetch e5-small` again."
        )
    text = json.dumps(E5_CONFIG, indent=2, sort_keys=True) + "\n"
    (folder / "config.json").write_bytes(text.encode())
    write_safetensors(tensors, folder / "model.safetensors")


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
