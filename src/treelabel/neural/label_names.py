"""The names of labels as vectors, where a network begins with them."""

import numpy as np
import torch
from torch import Tensor

from treelabel.core.strings import Strings
from treelabel.models.descriptions import name_words
from treelabel.neural.featurizers import FrozenFeaturizer, StatesFeaturizer, TokenFeaturizer
from treelabel.neural.inputs import KnownVectors
from treelabel.neural.network import NetworkSpec


def label_texts(spec: NetworkSpec) -> list[str]:
    """Return the names of the labels as texts."""
    return [name_words(name) for name in spec.hierarchy.names]


def name_states(spec: NetworkSpec, featurizer: FrozenFeaturizer | StatesFeaturizer) -> tuple[Tensor, ...]:
    """Return what a frozen encoder says of the name of each label: the states of its tokens, or one vector.

    Parameters
    ----------
    spec
        With the labels.
    featurizer
        With the encoder.

    Returns
    -------
    tuple of Tensor
        Tokens × width each, in the order of nodes.
    """
    found = featurizer.inputs(Strings.of(label_texts(spec)), spec.progress)
    if isinstance(found, KnownVectors):
        return tuple(found.values.unsqueeze(1))
    return tuple(torch.from_numpy(row.astype(np.float32)) for row in found.rows())


def name_embeddings(spec: NetworkSpec, featurizer: TokenFeaturizer) -> tuple[Tensor, ...]:
    """Return the word embeddings of the pieces of each label's name, special tokens left out.

    Parameters
    ----------
    spec
        With the labels and the backbone.
    featurizer
        With the tokenizer.

    Returns
    -------
    tuple of Tensor
        Pieces × width each, in the order of nodes.
    """
    featurizer.tokenizer.no_truncation()
    table = spec.backbone.get_input_embeddings().weight.detach()
    encoded = featurizer.tokenizer.encode_batch(label_texts(spec), add_special_tokens=False)
    return tuple(table[torch.tensor(each.ids, dtype=torch.long)].clone() for each in encoded)
