"""Model name -> Encoder: the weights, the tokenizer, the sizes; and its random twin."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from attnlib.data import assets, sources
from attnlib.errors import (
    AssetError,
    BadValue,
    UnknownModel,
    Unobservable,
    did_you_mean,
    first_line,
)

MODELS_HERE = ("e5-small", "minilm-l6")
"""Models every machine can have: they come with packages."""


@dataclass(frozen=True, eq=False)
class Encoder:
    """A bidirectional transformer in evaluation mode, with what a measurement needs to know of it.

    >>> from attnlib import random_encoder
    >>> encoder = random_encoder()
    >>> encoder.name, encoder.max_length, encoder.device.type
    ('random', 512, 'cpu')
    """

    name: str
    model: Any
    tokenizer: Any
    n_layers: int
    n_heads: int
    n_segments: int
    max_length: int
    source: str

    @property
    def device(self) -> torch.device:
        return next(self.model.parameters()).device

    @property
    def pad_id(self) -> int:
        pad = self.tokenizer.pad_token_id
        return 0 if pad is None else pad

    def to(self, device: str | torch.device) -> Encoder:
        return replace(self, model=self.model.to(device))


def load_encoder(
    name: str | Path, *, device: str = "auto", dtype: torch.dtype | None = None
) -> Encoder:
    """An encoder by its name here, such as e5-small, by a local folder, or by a hub id.

    >>> from tempfile import TemporaryDirectory
    >>> from attnlib import load_encoder, random_encoder
    >>> own = random_encoder()
    >>> with TemporaryDirectory() as folder:
    ...     files = own.model.save_pretrained(folder), own.tokenizer.save_pretrained(folder)
    ...     loaded = load_encoder(folder, device="cpu")
    >>> loaded.n_layers, loaded.n_heads
    (2, 2)
    """
    folder = model_folder(str(name))
    config = _quietly(_load_config, folder, str(name))
    _refuse_unsuited(config, str(name))
    model = _quietly(_load_model, folder, config, str(name), dtype)
    tokenizer = _quietly(_load_tokenizer, folder, str(name))
    _refuse_unknown_pieces(model, tokenizer, str(name))
    return _encoder(str(name), model, tokenizer, source=str(folder)).to(pick_device(device))


def random_twin(encoder: Encoder, seed: int = 0) -> Encoder:
    """The same network with its embeddings kept and every other weight drawn anew.

    The control of Clark 2019, sec. 5: what does the architecture alone already give?

    >>> from attnlib import random_encoder, random_twin
    >>> random_twin(random_encoder(), seed=1).name
    'random (random twin, seed 1)'
    """
    twin = copy.deepcopy(encoder.model)
    spread = getattr(twin.config, "initializer_range", 0.02)
    generator = torch.Generator().manual_seed(seed)
    for name, module in twin.named_modules():
        if "embeddings" in name.split("."):
            continue
        if isinstance(module, nn.Linear | nn.Embedding):
            fresh = torch.randn(module.weight.shape, generator=generator) * spread
            module.weight.data.copy_(fresh)
        if isinstance(module, nn.LayerNorm):
            module.weight.data.fill_(1.0)
        if isinstance(module, nn.Linear | nn.LayerNorm) and module.bias is not None:
            module.bias.data.zero_()
    return replace(encoder, name=f"{encoder.name} (random twin, seed {seed})", model=twin)


def weights_digest(encoder: Encoder) -> str:
    """A digest of the weights and the vocabulary, whatever file they came from, if any."""
    digest = hashlib.sha256(repr(sorted(encoder.tokenizer.get_vocab().items())).encode())
    for name, tensor in sorted(encoder.model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.cpu().contiguous().view(-1).view(torch.uint8).numpy())
    return digest.hexdigest()[:32]


def random_encoder(
    config: Any = None, tokenizer: Any = None, *, name: str = "random", seed: int = 0
) -> Encoder:
    """A network with random weights: for first steps, full-shape checks and benchmarks.

    Without a tokenizer every letter is a piece; without a config there are two layers of two heads.

    >>> from attnlib import random_encoder
    >>> encoder = random_encoder()
    >>> encoder.n_layers, encoder.n_heads
    (2, 2)
    >>> encoder.tokenizer.tokenize("A cat")
    ['a', 'c', '##a', '##t']
    """
    from transformers import AutoModel, BertConfig, BertTokenizer

    if tokenizer is None:
        signs = [chr(code) for code in range(33, 127) if not chr(code).isupper()]
        pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *signs, *(f"##{s}" for s in signs)]
        tokenizer = BertTokenizer(vocab={piece: place for place, piece in enumerate(pieces)})
    if config is None:
        config = BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=2,
        )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModel.from_config(config).eval()
    return _encoder(name, model, tokenizer, source="random weights")


def pick_device(device: str) -> str:
    """`auto` is the first of CUDA, MPS and CPU that is there."""
    if device == "auto":
        if torch.cuda.is_available():
            return "cuda"
        return "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise BadValue(
            f"device '{device}' cannot be used here ({first_line(error)}). "
            "Use --device auto or cpu."
        ) from None
    return device


def model_folder(name: str) -> Path:
    """The local folder of a model: a folder the user gave, an asset, or a hub snapshot."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if name in assets.known():
        return assets.resolve(name)
    if path.exists():
        raise UnknownModel(f"'{name}' is a file; expected a folder with config.json and weights.")
    models = [key for key, asset in assets.known().items() if asset.kind == "model"]
    try:
        return sources.hub_snapshot(name)
    except AssetError:
        raise UnknownModel(
            f"'{name}'. {did_you_mean(name, models)}Known here: {', '.join(MODELS_HERE)}. "
            "Any local folder works too, and any hub id where the hub can be reached."
        ) from None


OBSERVABLE = "an encoder such as BERT, DistilBERT, RoBERTa, MPNet or ELECTRA"
WEIGHTS = "Expected model.safetensors or pytorch_model.bin that fits config.json."
_LOCAL: Any = {"local_files_only": True, "trust_remote_code": False}


def _load_config(folder: Path, name: str) -> Any:
    from transformers import AutoConfig

    if not (folder / "config.json").is_file():
        raise UnknownModel(
            f"'{name}' has no config.json; expected a folder that transformers can load. "
            "Save the model there with save_pretrained()."
        )
    advice = "Expected a model folder written by save_pretrained()."
    with _refusing(name, "config.json cannot be read", advice):
        return AutoConfig.from_pretrained(folder, **_LOCAL)


def _load_model(folder: Path, config: Any, name: str, dtype: torch.dtype | None) -> Any:
    from transformers import AutoModel

    with _refusing(name, "weights cannot be loaded", WEIGHTS):
        model, report = AutoModel.from_pretrained(
            folder,
            config=config,
            dtype=dtype or torch.float32,
            ignore_mismatched_sizes=True,  # refused below, by name
            output_loading_info=True,
            **_LOCAL,
        )
    _refuse_random_weights(report, name)
    if hasattr(model, "pooler"):
        model.pooler = None  # never used here, and random where the checkpoint has none
    return model.eval()


def _refuse_random_weights(report: dict[str, Any], name: str) -> None:
    """transformers draws at random, and only logs, whatever a checkpoint lacks."""
    misfits = [str(key) for key, *_ in report["mismatched_keys"]]
    random = sorted({*report["missing_keys"], *misfits})
    random = [key for key in random if "pooler" not in key.split(".")]
    if random:
        raise UnknownModel(
            f"'{name}': {len(random)} of its weights are missing or of another shape, the first "
            f"is {random[0]}. {WEIGHTS}"
        )


def _load_tokenizer(folder: Path, name: str) -> Any:
    from transformers import AutoTokenizer

    advice = "Expected tokenizer.json, or vocab.txt, next to config.json."
    with _refusing(name, "tokenizer cannot be loaded", advice):
        tokenizer = AutoTokenizer.from_pretrained(folder, **_LOCAL)
    if not tokenizer.is_fast:
        raise Unobservable(
            f"'{name}' has no fast tokenizer, so pieces cannot be aligned with words. "
            "Save a tokenizer.json next to its config.json."
        )
    if len(tokenizer) <= len(tokenizer.all_special_tokens):  # made up where no file is found
        raise UnknownModel(f"'{name}' has no tokenizer. {advice}")
    return tokenizer


def _refuse_unsuited(config: Any, name: str) -> None:
    """Only one stack of self-attention layers can be drawn as a grid of heads."""
    n_heads = getattr(config, "num_attention_heads", None)
    if getattr(config, "is_encoder_decoder", False):
        trouble = "is an encoder-decoder"
    elif not n_heads:
        trouble = "has no attention heads to observe"
    elif getattr(config, "num_key_value_heads", None) not in (None, n_heads):
        trouble = "shares keys between its heads"
    else:
        return
    raise Unobservable(f"'{name}' ({config.model_type}) {trouble}; expected {OBSERVABLE}.")


def _refuse_unknown_pieces(model: Any, tokenizer: Any, name: str) -> None:
    n_known = model.get_input_embeddings().num_embeddings
    largest = max(tokenizer.get_vocab().values())
    if largest >= n_known:
        raise UnknownModel(
            f"'{name}': its tokenizer numbers pieces up to {largest}, its model knows {n_known}. "
            "Expected a tokenizer and a model that were saved together."
        )


def _encoder(name: str, model: Any, tokenizer: Any, source: str) -> Encoder:
    config = model.config
    positions = getattr(config, "max_position_embeddings", 512)
    embedding = getattr(getattr(model, "embeddings", None), "position_embeddings", None)
    padding = getattr(embedding, "padding_idx", None)
    if padding is not None:
        positions -= padding + 1  # RoBERTa and its kin count from there on
    return Encoder(
        name=name,
        model=model,
        tokenizer=tokenizer,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        n_segments=getattr(config, "type_vocab_size", 0) or 0,
        max_length=positions,
        source=source,
    )


def _quietly(load: Any, *args: Any) -> Any:
    """Run a loader of transformers without its progress bars and load reports."""
    from transformers.utils import logging as transformers_logging

    logger = logging.getLogger("transformers")
    level = logger.level
    bars = transformers_logging.is_progress_bar_enabled()
    transformers_logging.disable_progress_bar()
    logger.setLevel(logging.CRITICAL)
    try:
        return load(*args)
    finally:
        logger.setLevel(level)
        if bars:
            transformers_logging.enable_progress_bar()


@contextmanager
def _refusing(name: str, trouble: str, advice: str) -> Iterator[None]:
    """Whatever the loaders of transformers raise, and they raise a dozen kinds, in one sentence."""
    try:
        yield
    except Exception as error:
        reason = first_line(error)
        raise UnknownModel(f"'{name}': its {trouble} ({reason}). {advice}") from None
