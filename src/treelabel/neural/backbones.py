"""The transformer that is fine-tuned: loading it or making a small one, and what of it is trained."""

from collections.abc import Iterator
from typing import Any

from torch import nn

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import load_backbone, load_tokenizer
from treelabel.encoders.files import read_config
from treelabel.encoders.sources import Pooling, find_source
from treelabel.neural.featurizers import TokenFeaturizer
from treelabel.neural.network_settings import NetworkSettings
from treelabel.neural.scratch import learned_tokenizer, small_bert, small_xlnet

SCRATCH_LENGTH = 128


def new_backbone(model: NetworkSettings, texts: Strings) -> tuple[TokenFeaturizer, Any]:
    """Make the transformer to train, and how it sees texts; "scratch" learns its tokenizer from training texts."""
    if model.encoder == "scratch":
        family = model.scratch_family
        length = SCRATCH_LENGTH if model.max_length is None else model.max_length
        tokenizer = learned_tokenizer(texts, family)
        size = tokenizer.get_vocab_size()
        backbone = small_xlnet(size) if family == "xlnet" else small_bert(size, length, model.scratch_layers)
        usual: Pooling = "last" if family == "xlnet" else "mean"
        return TokenFeaturizer(tokenizer, length, usual if model.pooling is None else model.pooling), backbone
    source = find_source(str(model.choose_encoder()))
    if read_config(source.folder / "config.json").get("is_encoder_decoder"):
        raise TreelabelError(
            f"the encoder {source.name} is half of an encoder and decoder, which can be used frozen "
            f"({model.mode_setting}=head) but not be trained; give one that is an encoder alone, such as BERT's family"
        )
    featurizer = TokenFeaturizer(load_tokenizer(source.folder), source.max_length, source.pooling)
    return featurizer, load_backbone(source.folder)


def prepare_backbone(model: NetworkSettings, backbone: Any) -> Any:
    """Set dropout, LoRA, frozen layers and gradient checkpointing in place; peft wraps a backbone with LoRA."""
    if model.dropout is not None:
        for module in backbone.modules():
            if isinstance(module, nn.Dropout):
                module.p = model.dropout
    if model.trained_part == "lora":
        backbone = with_lora(backbone, model.training.lora_rank)
    freeze(backbone, model.training.frozen_layers)
    if model.training.gradient_checkpointing:
        try:
            backbone.gradient_checkpointing_enable({"use_reentrant": False})
        except ValueError as error:
            raise TreelabelError(f"gradient_checkpointing=True does not work with this encoder: {error}") from error
    return backbone


def layers_of(backbone: nn.Module) -> nn.ModuleList:
    """Return the layers of a transformer, first to last: its longest list of modules."""
    lists = [module for module in backbone.modules() if isinstance(module, nn.ModuleList)]
    return max(lists, key=len, default=nn.ModuleList())


def parameter_depths(backbone: nn.Module) -> Iterator[tuple[nn.Parameter, int]]:
    """Yield the parameters of a transformer with their layer, from 1; embeddings are 0, what follows layers is last."""
    layers = list(layers_of(backbone))
    layer_of = {id(p): number for number, layer in enumerate(layers, 1) for p in layer.parameters()}
    before = True
    for parameter in backbone.parameters():
        number = layer_of.get(id(parameter))
        before = before and number is None
        yield parameter, number if number is not None else 0 if before else len(layers)


def freeze(backbone: nn.Module, layers: int) -> None:
    """Freeze the embeddings and so many first layers; 0 trains everything, embeddings included."""
    for parameter, depth in parameter_depths(backbone):
        if layers and depth <= layers:
            parameter.requires_grad_(False)


def with_lora(backbone: Any, rank: int) -> Any:
    """Train matrices of low rank alongside the linear layers instead of these (LoRA, by peft)."""
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(r=rank, lora_alpha=2 * rank, lora_dropout=0.0, target_modules="all-linear", bias="none")
    return get_peft_model(backbone, config)


def without_lora(backbone: Any) -> Any:
    """Merge the matrices of LoRA into the layers beside them."""
    return backbone.merge_and_unload() if hasattr(backbone, "merge_and_unload") else backbone
