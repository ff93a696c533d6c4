"""The transformer that is fine-tuned: loading it or making a small one, and what of it is trained."""

from typing import Any

from torch import nn

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import load_backbone, load_tokenizer
from treelabel.encoders.files import read_config
from treelabel.encoders.sources import Pooling, find_source
from treelabel.neural.featurizers import TokenFeaturizer
from treelabel.neural.network import freeze, with_lora
from treelabel.neural.scratch import LAYERS, Family, learned_tokenizer, small_bert, small_xlnet
from treelabel.neural.settings import NeuralSettings

SCRATCH_LENGTH = 128


def new_backbone(
    settings: NeuralSettings, texts: Strings, family: Family = "bert", scratch_layers: int = LAYERS
) -> tuple[TokenFeaturizer, Any]:
    """Make the transformer to train.

    Parameters
    ----------
    settings
        The settings of the model.
    texts
        Training texts, from which "scratch" learns its tokenizer.
    family
        What "scratch" is.
    scratch_layers
        The layers of a transformer from scratch.

    Returns
    -------
    tuple
        How it sees texts, and the transformer.
    """
    if settings.encoder == "scratch":
        length = SCRATCH_LENGTH if settings.max_length is None else settings.max_length
        tokenizer = learned_tokenizer(texts, family)
        size = tokenizer.get_vocab_size()
        backbone = small_xlnet(size) if family == "xlnet" else small_bert(size, length, scratch_layers)
        usual: Pooling = "last" if family == "xlnet" else "mean"
        return TokenFeaturizer(tokenizer, length, usual if settings.pooling is None else settings.pooling), backbone
    source = find_source(str(settings.encoder_spec))
    if read_config(source.folder / "config.json").get("is_encoder_decoder"):
        raise TreelabelError(
            f"the encoder {source.name} is half of an encoder and decoder, which can be used frozen (train=head) but "
            "not be trained; give one that is an encoder alone, such as BERT's family"
        )
    featurizer = TokenFeaturizer(load_tokenizer(source.folder), source.max_length, source.pooling)
    return featurizer, load_backbone(source.folder)


def prepared_backbone(settings: NeuralSettings, backbone: Any) -> Any:
    """Set dropout, LoRA, frozen layers and gradient checkpointing.

    Parameters
    ----------
    settings
        The settings of the model.
    backbone
        A transformer, changed in place.

    Returns
    -------
    Any
        The transformer, wrapped by peft if LoRA is trained.
    """
    if settings.dropout is not None:
        for module in backbone.modules():
            if isinstance(module, nn.Dropout):
                module.p = settings.dropout
    if settings.trained_part == "lora":
        backbone = with_lora(backbone, settings.lora_rank)
    freeze(backbone, settings.frozen_layers)
    if settings.gradient_checkpointing:
        try:
            backbone.gradient_checkpointing_enable({"use_reentrant": False})
        except ValueError as error:
            raise TreelabelError(f"gradient_checkpointing=True does not work with this encoder: {error}") from error
    return backbone
