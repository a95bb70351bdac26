"""Tiny random models of several families with real tokenizers, as folders of save_pretrained."""

from __future__ import annotations

import json
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

LAYERS, HEADS, HIDDEN, POSITIONS = 3, 4, 32, 66
"""Sizes of every tiny model; RoBERTa and MPNet can use two positions fewer."""

SENTENCES = (
    "The old bridge over the river was closed, so we took the ferry.",
    "Don't wait: it doesn't run after nine o'clock!",
    "Her well-known café sells 1,250 éclairs a week.",
    "A",
    "Why did the engineers, who had measured the cables twice, refuse to sign the report?",
    "It rained.",
    "Nobody in the small mountain village remembered a colder winter than that of 1963; "
    "the wells froze, the road disappeared under the snow and the school stayed closed.",
)
"""Texts of mixed lengths: what the tokenizers learn from and the tests run on."""

WORDS = (
    "the of a an to was so we it in that who had old over river bridge closed took run after nine "
    "clock wait don does her well known cafe sells week why did engineers rained small road snow "
    "school stayed ##s ##ed ##ing ##er ##ll ##or ##ain ##ou ##th ##en"
)
"""Pieces of more than one character in the WordPiece vocabulary."""

BERT_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
MPNET_SPECIAL = ("<s>", "<pad>", "</s>", "[UNK]", "<mask>")
BYTE_SPECIAL = ("<s>", "<pad>", "</s>", "<unk>", "<mask>")


@dataclass(frozen=True)
class Family:
    """How to make one family, and how many pieces its positions are good for."""

    config: Callable[[int], Any]
    tokenizer: Callable[[], Any]
    max_length: int = POSITIONS


def _word_pieces(special: tuple[str, ...]) -> dict[str, int]:
    """Every ASCII character alone and inside a word, some words and endings; nothing else."""
    letters = string.ascii_lowercase + string.digits
    pieces = [*special, *letters, *string.punctuation, *(f"##{c}" for c in letters)]
    return {piece: i for i, piece in enumerate(dict.fromkeys([*pieces, *WORDS.split()]))}


def word_piece_tokenizer() -> Any:
    return transformers.BertTokenizer(vocab=_word_pieces(BERT_SPECIAL))


def mpnet_tokenizer() -> Any:
    return transformers.MPNetTokenizer(vocab=_word_pieces(MPNET_SPECIAL))


def byte_level_tokenizer(**options: Any) -> Any:
    """A byte-level BPE learnt from the sentences; it knows every byte."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(
        vocab_size=340,
        special_tokens=list(BYTE_SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(SENTENCES, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    merges = [tuple(pair) for pair in model["merges"]]
    return transformers.RobertaTokenizer(vocab=model["vocab"], merges=merges, **options)


def _sizes(n_pieces: int) -> dict[str, Any]:
    return {
        "vocab_size": n_pieces,
        "hidden_size": HIDDEN,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": 2 * HIDDEN,
        "max_position_embeddings": POSITIONS,
    }


def _distilbert(n_pieces: int) -> Any:
    return transformers.DistilBertConfig(
        vocab_size=n_pieces,
        dim=HIDDEN,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=2 * HIDDEN,
        max_position_embeddings=POSITIONS,
    )


def _config(name: str, n_pieces: int, **more: Any) -> Any:
    return getattr(transformers, name)(**_sizes(n_pieces), **more)


BYTES: dict[str, Any] = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}

FAMILIES = {
    "bert": Family(partial(_config, "BertConfig"), word_piece_tokenizer),
    "distilbert": Family(_distilbert, word_piece_tokenizer),
    "roberta": Family(
        partial(_config, "RobertaConfig", type_vocab_size=1, **BYTES),
        byte_level_tokenizer,
        POSITIONS - 2,
    ),
    "mpnet": Family(partial(_config, "MPNetConfig", **BYTES), mpnet_tokenizer, POSITIONS - 2),
    "electra": Family(
        partial(_config, "ElectraConfig", embedding_size=HIDDEN // 2), word_piece_tokenizer
    ),
    "albert": Family(
        partial(_config, "AlbertConfig", embedding_size=HIDDEN // 2), word_piece_tokenizer
    ),
    "deberta-v2": Family(
        partial(
            _config,
            "DebertaV2Config",
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            position_buckets=16,
        ),
        word_piece_tokenizer,
    ),
}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Threads only get into each other's way on matrices this small; import this to use it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a family's tiny model, made when it is first asked for."""
    root = tmp_path_factory.mktemp("families")

    def folder(name: str) -> Path:
        return root / name if (root / name).is_dir() else save_family(name, root / name)

    return folder


def save_family(name: str, folder: Path, seed: int = 0) -> Path:
    """The folder of a tiny model of that family; every weight is random, biases included."""
    family = FAMILIES[name]
    tokenizer = family.tokenizer()
    return save_model(family.config(len(tokenizer)), tokenizer, folder, seed)


def save_model(config: Any, tokenizer: Any, folder: Path, seed: int = 0) -> Path:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = transformers.AutoModel.from_config(config)
        for parameter in model.parameters():
            parameter.data.add_(torch.randn_like(parameter) * 0.2)
    transformers.utils.logging.disable_progress_bar()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
