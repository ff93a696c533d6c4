"""A small BERT or XLNet with random weights and its own tokenizer: no files are needed."""

from collections import Counter
from typing import Any, Literal

from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from treelabel.core.strings import Strings

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
