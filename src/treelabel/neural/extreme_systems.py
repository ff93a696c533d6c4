"""The systems for very many labels, AttentionXML and LightXML, as models: their settings, and how networks are made.

All are trained, saved and loaded as the model `neural` is. torch is imported when something is fitted or loaded.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from treelabel.core.array_schema import Schema
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.validation import Between
from treelabel.encoders.registry import default_encoder_name
from treelabel.models.base import Training
from treelabel.models.extreme.label_tree import LabelTree
from treelabel.neural.config import Recipe
from treelabel.neural.exported import ExportedNetwork
from treelabel.neural.label_trees import level_sizes, tree_of_training, with_tree
from treelabel.neural.settings import NeuralSettings
from treelabel.neural.systems import Positive, System
from treelabel.scores import Scores

if TYPE_CHECKING:
    from treelabel.neural.architecture import Architecture

Labels = Annotated[int, Between(1, 1 << 31)]
ClusterSize = Annotated[int, Between(2, 1 << 16)]
Dropout = Annotated[float, Between(0, 0.99)]


class ExtremeSystem(System):
    """A system that ranks candidates: the labels below the best clusters of a label tree.

    Its labels are those at which the labels of training documents end; nodes above them have the largest of their
    scores, all others 0. Trained with binary cross-entropy (loss="bce") alone.
    """

    def _check_settings(self) -> None:
        super()._check_settings()
        if self.loss != "bce":
            raise TreelabelError(f"the model {self.name} is trained with the loss bce, found {self.loss!r}")

    def _schema(self, values: dict[str, Any]) -> Schema:
        if "runtime" in values:
            raise TreelabelError(f"a model {self.name} is never an exported graph")
        return with_tree(super()._schema(values), len(self.hierarchy_))

    def _score_top(self, texts: Strings, top: int) -> Scores:
        assert not isinstance(self.fitted_, ExportedNetwork)
        return self.fitted_.score(texts, top)


class AttentionXml(ExtremeSystem):
    """AttentionXML (You et al., NeurIPS 2019): every label attends to the words that matter for it.

    A BiLSTM reads word vectors, every label has an attention of its own, and all share an MLP. Many labels are put into
    a shallow, wide tree, whose levels are trained one after another; a text costs the first level and the children of
    its best nodes. `AttentionXmlNetwork` says what differs from the paper.

    Word vectors are those of a frozen encoder: static vectors where some are installed, unless an encoder is given; the
    token states of a transformer do, too, but take longer to compute than all that is trained. With encoder="scratch"
    they are learned. `max_length` is how many words of a text are read (500 in the program): time grows with it.

    With a time limit, every level has its share: a level that has begun is always trained, and texts are always ranked
    down to the labels. Two cores train on some 250 texts of a hundred words a second and level.

    Parameters
    ----------
    max_flat_labels
        The largest level that is scored whole: so many labels need no tree. (The program has none up to 31,000.)
    cluster_size, top_clusters
        Children of a node, and nodes of a level that are looked below: their product is the number of candidates, about
        1,000 in the program.
    lstm_size, mlp_size
        The widths of the LSTM's directions and of the MLP (256 and more in the program; a CPU reads a text with 128 in
        twice the time that it takes with 64).
    embedding_dropout, states_dropout
        Dropout of word vectors, and of the LSTM's states.
    **settings
        The settings of all systems: see `Neural`. `mode` follows from the encoder.
    """

    name = "attention_xml"
    takes_states = True
    needs_encoder = False
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = dict.fromkeys(
        ("head", "lora", "all", "scratch"), (8, 32, 5e-3)
    )
    outputs_rate = 5e-3

    def __init__(
        self,
        *,
        max_flat_labels: Labels = 2048,
        cluster_size: ClusterSize = 16,
        top_clusters: Positive = 32,
        lstm_size: Positive = 64,
        mlp_size: Positive = 64,
        embedding_dropout: Dropout = 0.2,
        states_dropout: Dropout = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.max_flat_labels = max_flat_labels
        self.cluster_size = cluster_size
        self.top_clusters = top_clusters
        self.lstm_size = lstm_size
        self.mlp_size = mlp_size
        self.embedding_dropout = embedding_dropout
        self.states_dropout = states_dropout

    def _check_settings(self) -> None:
        if self.mode == "lora" or (self.mode == "all" and self.encoder != "scratch"):
            raise TreelabelError(
                f"the model {self.name} reads word vectors, frozen (mode=head) or learned (encoder=scratch); found "
                f"mode={self.mode} with the encoder {self.encoder}"
            )
        super()._check_settings()

    def _default_encoder(self, settings: NeuralSettings) -> str:
        try:
            return default_encoder_name("model2vec")
        except TreelabelError:
            return super()._default_encoder(settings)

    def _label_tree(self, train: Training) -> LabelTree:
        sizes = partial(level_sizes, cluster_size=self.cluster_size, max_flat_labels=self.max_flat_labels)
        return tree_of_training(train, sizes, self.seed)

    def _architecture(self) -> "Architecture":
        from treelabel.neural.architecture import Architecture
        from treelabel.neural.attention_xml import AttentionXmlNetwork

        own = {name: value for name, value in self._own().items() if name not in ("max_flat_labels", "cluster_size")}
        return Architecture(
            partial(AttentionXmlNetwork, **own),
            self.takes_states,
            identity=self._identity(),
            label_tree=self._label_tree,
            scratch_layers=0,
        )


class LightXml(ExtremeSystem):
    """LightXML (Jiang et al., AAAI 2021): clusters of labels are recalled and their labels ranked, end to end.

    Candidates are the labels of the clusters that the network itself thinks best, so that negatives become harder as it
    learns. `LightXmlNetwork` says what differs from the paper. With mode="head", the text vector is the embedding of a
    frozen encoder, and nothing else differs.

    Parameters
    ----------
    max_flat_labels
        So many labels need no clusters, but a linear layer.
    cluster_size, top_clusters
        Labels of a cluster, and clusters that are looked into: their product is the number of candidates, some
        thousands in the program.
    bottleneck_size
        The width of label embeddings (400 or 500 in the program).
    hidden_layers
        How many layers of a fine-tuned encoder are looked at, the last ones.
    text_dropout
        Dropout of the text vector.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "light_xml"
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (30, 64, 5e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 1e-4),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 1e-3

    def __init__(
        self,
        *,
        max_flat_labels: Labels = 20_000,
        cluster_size: ClusterSize = 32,
        top_clusters: Positive = 32,
        bottleneck_size: Positive = 128,
        hidden_layers: Annotated[int, Between(1, 1000)] = 5,
        text_dropout: Dropout = 0.5,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.max_flat_labels = max_flat_labels
        self.cluster_size = cluster_size
        self.top_clusters = top_clusters
        self.bottleneck_size = bottleneck_size
        self.hidden_layers = hidden_layers
        self.text_dropout = text_dropout

    def _label_tree(self, train: Training) -> LabelTree:
        def sizes(labels: int) -> list[int]:
            return [] if labels <= self.max_flat_labels else [-(-labels // self.cluster_size)]

        return tree_of_training(train, sizes, self.seed)

    def _architecture(self) -> "Architecture":
        from treelabel.neural.architecture import Architecture
        from treelabel.neural.light_xml import LightXmlNetwork

        own = {name: value for name, value in self._own().items() if name not in ("max_flat_labels", "cluster_size")}
        return Architecture(
            partial(LightXmlNetwork, **own),
            self.takes_states,
            identity=self._identity(),
            label_tree=self._label_tree,
        )
