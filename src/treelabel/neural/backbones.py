"""The transformer that is fine-tuned: loading it or making a small one, and what of it is trained."""

from collections import Counter
from collections.abc import Iterator
from typing import Any, Literal

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing
from torch import nn

from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.encoders.backbone import layers_of, load_backbone, load_tokenizer
from treelabel.encoders.files import read_config
from treelabel.encoders.registry import Pooling, find_source
from treelabel.neural.featurizers import TokenFeaturizer
from treelabel.neural.network_settings import NetworkSettings

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


LAYERS = 2
WIDTH = 64
VOCABULARY = 8_000
# The longest beginning or end of a word that is a piece of its own.
LONGEST_PIECE = 8
MARKS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
# Where [CLS] stands: before the text in BERT, at its end in XLNet.
Family = Literal["bert", "xlnet"]
TEMPLATES: dict[Family, str] = {"bert": "[CLS] $A [SEP]", "xlnet": "$A [SEP] [CLS]"}


def learned_tokenizer(texts: Strings, family: Family = "bert") -> Tokenizer:
    """Train an uncased WordPiece tokenizer, as BERT's, on the most frequent words, beginnings and ends.

    The trainers of `tokenizers` break ties at random, so that the same texts give different vocabularies; this one
    depends on the texts alone.

    >>> learned_tokenizer(Strings.of(["a cat sat", "a cat", "a sat hat"])).encode("A cat that").tokens
    ['[CLS]', 'a', 'cat', 't', '##h', '##at', '[SEP]']
    """
    normalizer, splitter = BertNormalizer(lowercase=True), BertPreTokenizer()
    words = Counter[str]()
    for text in texts:
        words.update(word for word, _ in splitter.pre_tokenize_str(normalizer.normalize_str(text)))
    vocabulary = {piece: number for number, piece in enumerate([*MARKS, *pieces_of(words)])}
    tokenizer = Tokenizer(WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizer, splitter
    marks = [(mark, vocabulary[mark]) for mark in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing(single=TEMPLATES[family], special_tokens=marks)
    return tokenizer


def pieces_of(words: Counter[str]) -> list[str]:
    """Return all characters, then the most frequent words, beginnings and ends that occur at least twice, in order.

    >>> pieces_of(Counter({"aha": 2}))
    ['##a', '##h', 'a', 'h', 'aha', '##aha', '##ha', 'ah']
    """
    counts = Counter[str]()
    for word, count in words.items():
        for cut in range(1, min(len(word), LONGEST_PIECE) + 1):
            counts[word[:cut]] += count
            counts["##" + word[-cut:]] += count
        if len(word) > LONGEST_PIECE:
            counts[word] += count
    characters = sorted({mark + letter for word in words for letter in word for mark in ("", "##")})
    # A whole word comes before a piece that is as frequent.
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0] not in words, item[0]))
    known = {*characters}
    return characters + [piece for piece, count in ranked[:VOCABULARY] if count > 1 and piece not in known]


def small_bert(vocabulary: int, max_length: int, layers: int = LAYERS) -> Any:
    """Make a BERT of width 64 with random weights, without its pooling layer.

    Without layers, states are the vectors of word pieces and their positions.
    """
    from transformers import BertConfig, BertModel

    config = BertConfig(
        vocab_size=vocabulary,
        hidden_size=WIDTH,
        num_hidden_layers=layers,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        max_position_embeddings=max_length,
        pad_token_id=0,
    )
    return BertModel(config, add_pooling_layer=False)


def small_xlnet(vocabulary: int) -> Any:
    """Make an XLNet of two layers and width 64 with random weights; it reads texts of any length."""
    from transformers import XLNetConfig, XLNetModel

    config = XLNetConfig(
        vocab_size=vocabulary, d_model=WIDTH, n_layer=LAYERS, n_head=4, d_inner=4 * WIDTH, pad_token_id=0
    )
    return XLNetModel(config)
