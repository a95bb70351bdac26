"""The masked-LM model of an encoder: its checkpoint, or its weights with a trained head."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from attnlib.attention.encode import Batch, Collator, batches_of, encode, model_inputs
from attnlib.data.corpora import Corpus
from attnlib.errors import BadValue, CorpusError, Unobservable
from attnlib.models import Encoder, _quietly
from experiments.shared.training.kept_models import home_of, keep, name_of, once, read_back
from experiments.shared.training.loop import Recipe, forget, train

NOT_ASKED = -100
"""The target of a piece that is not masked; PyTorch's own convention."""
RATE = 0.15
HELD_OUT = 0.1
HEAD_RATE, WHOLE_RATE, BATCH = 1e-3, 1e-4, 16
"""Learning rates of the head and of all weights, and segments of a step."""
VERSION = 1
"""Part of the key of every model: raise it with any change that changes what training ends with."""


def article(example: Any) -> str:
    """The document or article that an example is from; an example that names none is its own."""
    return str(getattr(example, "document", None) or example.id.partition("#")[0])


def unmeasured(fit_on: Corpus, measured: Corpus) -> Corpus:
    """The texts to train on: those that are not measured."""
    seen = set(measured.examples)
    return replace(fit_on, examples=tuple(one for one in fit_on.examples if one not in seen))


def masked(
    batch: Batch, encoder: Encoder, *, rate: float = RATE, seed: int = 0, draw: int = 0
) -> tuple[Batch, Tensor]:
    """The batch with some content pieces hidden behind [MASK], and what they were.

    batch.ids  (batch, piece)   the only field that changes
    returns    batch, targets (batch, piece), NOT_ASKED where nothing is to be predicted

    Of each example round(rate x content pieces) are chosen, at least one, never a special token.
    The choice depends on the seed, the draw and the example's index, not on its batch.
    """
    if not 0 < rate < 1:
        raise BadValue(f"mask-rate is {rate}; expected a share between 0 and 1, such as 0.15.")
    if encoder.tokenizer.mask_token_id is None:
        raise Unobservable(
            f"'{encoder.name}' has no mask token, so no masked-LM loss; use an encoder that was "
            "trained with one, such as BERT."
        )
    word = batch.word.cpu()
    chosen = torch.zeros_like(word, dtype=torch.bool)
    for row, index in enumerate(batch.index):
        content = (word[row] >= 0).nonzero().squeeze(-1)
        if not len(content):
            raise BadValue(f"document {index + 1} has only special tokens; expected a text.")
        order = np.random.default_rng([seed, draw, index]).permutation(len(content))
        chosen[row, content[order[: max(1, round(rate * len(content)))]]] = True
    chosen = chosen.to(batch.device)
    ids = batch.ids.masked_fill(chosen, encoder.tokenizer.mask_token_id)
    return replace(batch, ids=ids), batch.ids.masked_fill(~chosen, NOT_ASKED)


def example_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean cross-entropy over the masked pieces of each example, in nats.

    logits   (batch, piece, vocabulary)
    targets  (batch, piece)              NOT_ASKED where nothing is to be predicted
    returns  (batch,)
    """
    asked = targets != NOT_ASKED
    surprise = functional.cross_entropy(logits[asked], targets[asked], reduction="none")
    total = surprise.new_zeros(len(targets)).index_add(0, asked.nonzero()[:, 0], surprise)
    return total / asked.sum(-1)


def masked_lm(
    encoder: Encoder,
    corpus: Corpus,
    *,
    head_epochs: int = 1,
    epochs: int = 0,
    max_length: int = 128,
    seed: int = 0,
    cache: Path | None = None,
) -> tuple[Encoder, dict[str, Any]]:
    """The encoder as transformers' masked-LM model, whose output is logits, and how good it is.

    corpus       texts to train on and to judge by: a tenth of their articles are held out
    head_epochs  passes over the texts in which only the head learns, on the frozen encoder
    epochs       passes in which all weights learn, afterwards
    facts        model: "checkpoint" or "trained"; on the held-out texts the accuracy and the loss
                 at masked pieces, and the accuracy of the most frequent piece of the other texts

    A checkpoint that lacks nothing is used as it is. Any other encoder gives its weights to a
    model of its configuration, which is trained and kept in the store (or in `cache`).
    """
    learned, held_out = _parts(corpus, seed)
    limits: Any = {"max_length": max_length}
    name = f"{encoder.name} (masked LM)"
    complete = _quietly(_checkpoint, encoder)
    if complete is not None:
        own, facts = replace(encoder, name=name, model=complete), {"model": "checkpoint"}
    else:
        pieces = list(encode(learned, encoder, **limits))
        how: Any = {"batch_size": BATCH, "max_length": max_length, "seed": seed}
        recipes = [
            Recipe(epochs=n, learning_rate=rate, **how)
            for n, rate in ((head_epochs, HEAD_RATE), (epochs, WHOLE_RATE))
            if n
        ]
        settings = {"recipes": list(map(asdict, recipes)), "head_epochs": head_epochs, "rate": RATE}
        read = ((one.ids, one.segment) for one in pieces)

        def blank() -> Encoder:
            return replace(encoder, name=name, model=_quietly(_from_weights, encoder, seed))

        def run(folder: Path) -> tuple[Encoder, dict[str, Any]]:
            own, seconds = blank(), 0.0
            for stage, recipe in enumerate(recipes):
                part = _head(own) if head_epochs and stage == 0 else own.model.requires_grad_(True)
                loss = _loss_of(own, seed)
                kept = folder / f"stage-{stage}"
                seconds += train(part, pieces, Collator(encoder), loss, recipe, kept).seconds
                own.model.requires_grad_(False)
            facts = {"model": "trained", "key": name_of(folder), "seconds": round(seconds, 1)}
            keep(folder, own.model, facts)
            for stage in range(len(recipes)):
                forget(folder / f"stage-{stage}")
            return own, facts

        home = home_of("masked-lm", VERSION, encoder, settings, read, cache)
        own, facts = once(home, lambda at: read_back(at, blank, lambda own: own.model), run)
    own.model.eval().requires_grad_(False)
    counts = {"n_train": len(learned), "n_held_out": len(held_out)}
    return own, {**facts, **counts, **_quality(own, learned, held_out, seed, limits)}


def _parts(corpus: Corpus, seed: int) -> tuple[list[Any], list[Any]]:
    """Texts to learn from, and those of a tenth of the articles, to be judged by."""
    articles = sorted({article(example) for example in corpus.examples})
    if len(articles) < 2:
        raise CorpusError(
            f"texts of {len(articles)} article to train a masked-LM model on; expected two or "
            "more, one of them to judge it by."
        )
    order = np.random.default_rng(seed).permutation(len(articles))
    held = {articles[place] for place in order[: max(1, round(HELD_OUT * len(articles)))]}
    sides: tuple[list[Any], list[Any]] = ([], [])
    for example in corpus.examples:
        sides[article(example) in held].append(example)
    return sides


def _checkpoint(encoder: Encoder) -> Any:
    """The encoder's checkpoint as a masked-LM model, or None where anything is missing or new."""
    from transformers import AutoModelForMaskedLM

    if not (Path(encoder.source) / "config.json").is_file():
        return None
    try:
        model, report = AutoModelForMaskedLM.from_pretrained(
            encoder.source,
            local_files_only=True,
            trust_remote_code=False,
            dtype=next(encoder.model.parameters()).dtype,
            ignore_mismatched_sizes=True,  # counted below as missing
            output_loading_info=True,
        )
    except (ValueError, KeyError, OSError):  # no such model in this family
        return None
    if report["missing_keys"] or report["mismatched_keys"]:
        return None  # transformers draws at random whatever a checkpoint lacks
    model = model.eval().to(encoder.device)
    held = model.base_model.state_dict()
    given = encoder.model.state_dict()  # others than those of the file, in a random twin
    return (
        model if all(torch.equal(given[key], held.get(key, given[key])) for key in given) else None
    )


def _from_weights(encoder: Encoder, seed: int) -> Any:
    """A masked-LM model of the encoder's configuration with its weights; the head is random."""
    from transformers import AutoModelForMaskedLM

    with torch.random.fork_rng(), torch.inference_mode(False):
        torch.manual_seed(seed)
        try:
            model = AutoModelForMaskedLM.from_config(copy.deepcopy(encoder.model.config))
        except ValueError:
            raise Unobservable(
                f"transformers has no masked-LM model for '{encoder.name}'; use a family that has "
                "one, such as BERT."
            ) from None
    weight = next(encoder.model.parameters())
    model = model.to(device=weight.device, dtype=weight.dtype)
    lacking = model.base_model.load_state_dict(encoder.model.state_dict(), strict=False)
    if lacking.missing_keys:
        raise Unobservable(
            f"'{encoder.name}' lacks {lacking.missing_keys[0]} of a masked-LM model."
        )
    return model.eval().requires_grad_(False)


def _head(own: Encoder) -> nn.Module:
    """What the model has besides its encoder, ready to learn; a tied decoder stays as it is."""
    base = own.model.base_model
    head = nn.ModuleList(part for part in own.model.children() if part is not base)
    shared = {id(parameter) for parameter in base.parameters()}
    for parameter in head.parameters():
        parameter.requires_grad_(id(parameter) not in shared)
    return head


def _loss_of(own: Encoder, seed: int) -> Callable[[Batch], Tensor]:
    """The mean cross-entropy at masked pieces, masked anew in every step."""

    def loss(batch: Batch) -> Tensor:
        draw = 1 + int(torch.randint(2**31 - 1, ()))  # draw 0 is what models are judged by
        changed, targets = masked(batch, own, seed=seed, draw=draw)
        return example_losses(_logits(own, changed), targets).mean()

    return loss


def _logits(own: Encoder, batch: Batch) -> Tensor:
    logits: Tensor = own.model(**model_inputs(batch, own))[0]
    return logits


def _quality(
    own: Encoder, learned: Sequence[Any], held_out: Sequence[Any], seed: int, limits: Any
) -> dict[str, float]:
    """Accuracy and loss at the masked pieces of the held-out texts."""

    def pieces(batches: Iterable[Batch]) -> Tensor:
        found = [batch.ids[batch.word >= 0].cpu() for batch in batches]
        return torch.cat(found)

    frequent = pieces(batches_of(learned, own, **limits)).mode().values
    right, loss, baseline, n = 0.0, 0.0, 0.0, 0
    with torch.inference_mode():
        for batch in batches_of(held_out, own, batch_size=8, **limits):
            changed, targets = masked(batch, own, seed=seed)
            asked = targets != NOT_ASKED
            logits, wanted = _logits(own, changed)[asked].cpu(), targets[asked].cpu()
            right += float((logits.argmax(-1) == wanted).sum())
            baseline += float((wanted == frequent).sum())
            loss += float(functional.cross_entropy(logits, wanted, reduction="sum"))
            n += len(wanted)
    return {"accuracy": right / n, "loss": loss / n, "baseline_accuracy": baseline / n}
