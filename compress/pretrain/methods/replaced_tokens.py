"""Replaced token detection: a small generator fills in masked pieces, and the model finds those that it replaced.

Clark et al., "ELECTRA: Pre-training Text Encoders as Discriminators Rather Than Generators", 2020 (arXiv:2003.10555).
The model learns from every piece of a text and not from the masked ones alone. Both models are trained together and
share their embeddings; the loss of the generator does not flow through the pieces that it draws.
"""

from collections.abc import Mapping
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import ElectraConfig, ElectraForMaskedLM, ElectraForPreTraining, PreTrainedConfig, PreTrainedModel

from compress.batch_arrays import IGNORED_LABEL, INDEX
from compress.errors import ModelError
from compress.models.encoder_parts import base_of, family_of, head_size, word_embeddings
from compress.models.load_save import read_config
from compress.models.read_checkpoint import quiet
from compress.pretrain.encoder_limits import check_length
from compress.pretrain.encoders import Method, Setting, bert_config, load_with_head
from compress.pretrain.methods.bert_pretraining import MaskedLMObjective, mean_over_rows, predict_at, word_losses
from compress.pretrain.methods.masking import PIECE, Hashes
from compress.pretrain.pretrain_schema import ReplacedTokens
from compress.pretrain.scores.held_out import make_evaluator
from compress.train.objective import Batch, Losses, Objective, forward

GENERATOR, REPLACED_TOKENS = "generator", "replaced_tokens"
DRAW = PIECE + 1
"""What a random number of `Hashes` decides here: the piece that the generator draws."""


class ReplacedTokensObjective(Objective):
    """The generator's masked-LM loss, and the model's loss of telling drawn pieces from true ones.

    The model is one to which `attach_generator` gave its generator.
    """

    def __init__(self, settings: ReplacedTokens, masks: MaskedLMObjective) -> None:
        """``masks`` draws the pieces that the generator fills in."""
        self.settings, self.masks = settings, masks

    def identity(self) -> str:
        """Return what the losses depend on."""
        return f"replaced_tokens {self.settings.model_dump_json()} {self.masks.identity()}"

    def begin(self, progress: float, update: int = 0) -> None:
        """Draw the masks of this update."""
        self.masks.begin(progress, update)

    def __call__(self, model: PreTrainedModel, batch: Batch) -> Losses:
        """Compute both losses."""
        drawn, real = corrupt(generator_of(model), batch, self.masks), batch["attention_mask"].bool()
        logits = forward(model, {**batch, "input_ids": drawn.ids})["logits"]
        is_replaced = drawn.ids != batch["input_ids"]
        detection = mean_over_rows(detection_losses(logits[real], is_replaced[real]), real)
        return {GENERATOR: drawn.loss, REPLACED_TOKENS: self.settings.weight * detection}


class Drawn(NamedTuple):
    """A batch whose masked pieces a generator filled in."""

    ids: Tensor
    """(rows, pieces); where the generator drew the true piece, nothing is replaced."""
    loss: Tensor
    """The generator's masked-LM loss."""


def corrupt(generator: PreTrainedModel, batch: Batch, masks: MaskedLMObjective) -> Drawn:
    """Fill in the masked pieces of a batch by a generator, whose predictions get no gradient from what it draws."""
    masked, targets = masks.masked(generator, batch)
    chosen = targets != IGNORED_LABEL
    words = predict_at(generator, {**batch, "input_ids": masked}, chosen).words
    random = Hashes(batch[INDEX].to(masked.device), masked.shape[1], masks.seed, masks.step)
    drawn = draw_pieces(words.detach(), random.shares(DRAW)[chosen])
    loss = mean_over_rows(word_losses(words, targets[chosen]), chosen)
    return Drawn(batch["input_ids"].masked_scatter(chosen, drawn), loss)


def draw_pieces(logits: Tensor, shares: Tensor) -> Tensor:
    """Return a piece for each row of ``logits`` (rows, vocabulary), drawn from their softmax.

    Args:
        logits: of the generator.
        shares: random numbers from 0 to below 1 (rows,): the piece is the one at this share of the summed
            probabilities, so that one number decides.
    """
    sums = logits.float().softmax(dim=-1).cumsum(dim=-1)
    places = (shares.to(sums) * sums[:, -1])[:, None].contiguous()
    return torch.searchsorted(sums, places, right=True)[:, 0].clamp(max=logits.shape[-1] - 1)


def detection_losses(logits: Tensor, is_replaced: Tensor) -> Tensor:
    """Return the loss of each piece (pieces,), in fp32. A piece that was drawn and is the true one counts as true."""
    return F.binary_cross_entropy_with_logits(logits.float(), is_replaced.float(), reduction="none")


def attach_generator(model: PreTrainedModel, settings: ReplacedTokens, seed: int) -> None:
    """Give an `ElectraForPreTraining` a generator with random weights and the model's own embeddings.

    It is a part of the model while both are trained, so that checkpoints have it; `detach_generator` removes it.
    """
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        generator = ElectraForMaskedLM(generator_config(model.config, settings.generator))
    generator.electra.add_module("embeddings", base_of(model).get_submodule("embeddings"))
    generator.generator_lm_head.weight = word_embeddings(model).weight
    model.add_module(GENERATOR, generator)


def detach_generator(model: PreTrainedModel) -> PreTrainedModel:
    """Remove the generator of a trained model and return it."""
    generator = generator_of(model)
    delattr(model, GENERATOR)
    return generator


def generator_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the generator that is trained with a model."""
    generator = model.get_submodule(GENERATOR)
    assert isinstance(generator, PreTrainedModel)
    return generator


def generator_config(config: PreTrainedConfig, share: float) -> ElectraConfig:
    """Return the config of a generator: as deep as the model, and narrower, with heads of the same size."""
    heads = max(1, round(share * config.num_attention_heads))
    smaller = ElectraConfig.from_dict(config.to_dict())
    smaller.num_attention_heads, smaller.hidden_size = heads, heads * head_size(config)
    smaller.intermediate_size = max(1, round(share * config.intermediate_size))
    return smaller


def new_electra(config: ElectraConfig, seed: int) -> PreTrainedModel:
    """Return a model with random weights and a head that tells replaced pieces."""
    with quiet(), torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ElectraForPreTraining(config)
    model.train(False)
    return model


def replaced_tokens(setting: Setting) -> Method:
    """Train a model together with a generator.

    The weights are best whose generator predicts held-out words best: the model's own loss rises while the pieces that
    it has to find become more alike to true ones.
    """
    recipe, data = setting.recipe, setting.data
    settings, mask = recipe.replaced_tokens, data.special.mask
    assert settings is not None
    model = _start(setting)
    attach_generator(model, settings, recipe.seed)
    evaluate = make_evaluator(data.examples(model, "select", recipe.train.length), recipe.masked_lm, mask)

    def objective(first: int) -> ReplacedTokensObjective:
        return ReplacedTokensObjective(settings, MaskedLMObjective(recipe.masked_lm, mask, recipe.seed, first))

    return Method(model, objective, lambda trained: evaluate(generator_of(trained)), _split)


def _split(model: PreTrainedModel) -> Mapping[str, PreTrainedModel]:
    """Return the model without its generator, and the generator for a folder of its own."""
    return {"": model, GENERATOR: detach_generator(model)}


def _start(setting: Setting) -> PreTrainedModel:
    """Return the ELECTRA that training goes on from, or a new one."""
    recipe, special = setting.recipe, setting.data.special
    if setting.start is None:
        assert recipe.shape is not None
        bert = bert_config(recipe.shape, setting.data.vocabulary, recipe.train.length, special).to_dict()
        sizes = {key: value for key, value in bert.items() if key not in ("model_type", "architectures")}
        return new_electra(ElectraConfig(**sizes, embedding_size=bert["hidden_size"]), recipe.seed)
    config = read_config(setting.start)
    if family_of(config).name != "electra":
        raise ModelError(
            f"replaced_tokens trains an ELECTRA; {setting.start} is of the family {family_of(config).name}.",
            hint="leave replaced_tokens out, or give shape and vocabulary instead of start",
        )
    check_length(config.to_dict(), recipe.train.length, str(setting.start))
    return load_with_head(ElectraForPreTraining, setting.start, recipe.seed, setting.console)
