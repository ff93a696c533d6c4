"""How the network of a system is made; all of them are trained, saved and loaded in the same way."""

from collections.abc import Callable
from dataclasses import dataclass

from treelabel.models.extreme.label_tree import LabelTree
from treelabel.neural.network import Network, Outputs
from treelabel.neural.parts import Parts
from treelabel.neural.scratch import LAYERS, Family
from treelabel.selection.training import Training


@dataclass(frozen=True)
class Architecture:
    """How a network is made of its parts.

    Parameters
    ----------
    make
        Makes the network with random weights, which depend on torch's seed.
    takes_states
        Whether it sees the states of all tokens over a frozen encoder, and not one vector per text.
    needs_names
        Whether it looks at the names of labels.
    identity
        The system and its own settings, which a checkpoint belongs to.
    restore
        Makes the network that scores, whose weights are loaded afterwards; by default what `make` leaves at the end.
    has_file
        Whether weights are saved in a file of their own also over a frozen encoder, where the plain network has them
        among the arrays of the model.
    has_stops
        Whether inner nodes at which documents end have leaves of their own below them whatever the loss, so that every
        terminal label is a leaf of the hierarchy that the network sees.
    only_seen
        Whether the best epoch is the one that is best at labels which training documents have. Of very many labels,
        many that held-out documents have are not among these, and cost the more the surer a network becomes.
    scratch
        What the encoder "scratch" is.
    label_tree
        Puts the labels of training documents into a label tree, for networks that rank candidates.
    scratch_layers
        The layers of the small transformer that encoder="scratch" stands for; without any it is vectors of word pieces.
    """

    make: Callable[[Parts], Network]
    takes_states: bool = False
    needs_names: bool = False
    identity: str = ""
    restore: Callable[[Parts], Network] | None = None
    has_file: bool = True
    has_stops: bool = False
    only_seen: bool = False
    scratch: Family = "bert"
    label_tree: Callable[[Training], LabelTree] | None = None
    scratch_layers: int = LAYERS

    def restored(self, parts: Parts) -> Network:
        """Make the network that scores, with random weights."""
        return self.make(parts).finished() if self.restore is None else self.restore(parts)


def plain_network(parts: Parts) -> Network:
    """Make a network with linear outputs, after a hidden layer if there is one."""
    outputs = Outputs(parts.width, parts.outputs, parts.hidden_size, parts.dropout)
    return Network(parts.backbone, parts.pooling, outputs)


PLAIN = Architecture(plain_network, has_file=False)
