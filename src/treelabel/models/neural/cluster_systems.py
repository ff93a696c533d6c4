"""APLC-XLNet and X-Transformer as models: systems for very many labels, which they put into clusters.

torch is imported when something is fitted or loaded.
"""

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from treelabel.core.errors import TreelabelError
from treelabel.core.kinds import Between
from treelabel.models.neural.config import Recipe
from treelabel.models.neural.systems import System

if TYPE_CHECKING:
    from treelabel.models.neural.architecture import Architecture


def require_own_loss(model: System) -> None:
    """Refuse another loss for a system that has one of its own."""
    if model.loss != "bce" or model.loss_params:
        raise TreelabelError(f"the model {model.name} has a loss of its own: leave out loss and loss_params")


class AplcXlnet(System):
    """APLC-XLNet (Ye et al., ICML 2020): adaptive probabilistic label clusters over any encoder.

    Labels are sorted by frequency and cut into a head and tails, whose labels share a gate and see a narrower
    projection of the text: an epoch costs documents × hidden_size × labels for the head and less for each tail, of
    which only those with true labels are trained. `AplcNetwork` says what differs from the paper. encoder="scratch" is
    a small XLNet. Where the encoder is fine-tuned, the official rates are the defaults: 5e-5 for the encoder, 1e-4 for
    the hidden layer and 2e-3 for clusters (discriminative fine-tuning; `learning_rates` has others).

    Parameters
    ----------
    tail_clusters
        The number of tails, each with as many labels as the head: 1 to 3 in the paper, more for more labels.
    div_value
        The quotient of the widths of projections of a cluster and the next one.
    hidden_size
        The width of the hidden layer over text vectors; 0 is that of the encoder.
    lr_scheduler
        "slanted" (triangular), or another one of `neural`.
    **settings
        The settings of all systems: see `Neural`, and `System` for `mode`.
    """

    name = "aplc_xlnet"
    recipes: ClassVar[Mapping[Recipe, tuple[int, int, float]]] = {
        "head": (30, 128, 5e-3),
        "lora": (20, 16, 2e-4),
        "all": (20, 16, 5e-5),
        "scratch": (20, 16, 1e-3),
    }
    outputs_rate = 2e-3
    hidden_rate = 1e-4

    def __init__(
        self,
        *,
        tail_clusters: Annotated[int, Between(1, 100)] = 1,
        div_value: Annotated[float, Between(1, 1e6)] = 2.0,
        hidden_size: Annotated[int, Between(0, 1 << 16)] = 0,
        lr_scheduler: Literal["linear", "slanted", "constant"] = "slanted",
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.tail_clusters = tail_clusters
        self.div_value = div_value
        self.hidden_size = hidden_size
        self.lr_scheduler: str = lr_scheduler

    def _check_settings(self) -> None:
        super()._check_settings()
        require_own_loss(self)

    def _architecture(self) -> "Architecture":
        from treelabel.models.neural.aplc_xlnet import AplcNetwork
        from treelabel.models.neural.architecture import Architecture

        make = partial(AplcNetwork, tail_clusters=self.tail_clusters, div_value=self.div_value)
        return Architecture(make, identity=self._identity(), has_stops=True, scratch="xlnet")
