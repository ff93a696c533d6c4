"""A trained network as one ONNX graph, from token ids to the probabilities of all nodes; scoring needs no torch."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from treelabel.core.array_schema import Arrays
from treelabel.core.errors import TreelabelError
from treelabel.core.strings import Strings
from treelabel.core.types import FloatArray
from treelabel.encoders.onnx_sessions import open_session, run_graph
from treelabel.encoders.tokens import first_tokens
from treelabel.neural.network_schema import GRAPH, TOKENIZER
from treelabel.neural.objective import Objective
from treelabel.scores.score_matrix import Scores
from treelabel.selection.evidence import Stage

if TYPE_CHECKING:
    from tokenizers import Tokenizer


@dataclass(frozen=True, eq=False)
class ExportedNetwork:
    """A graph, the tokenizer of its texts, and the objective that says what its probabilities are of."""

    objective: Objective
    tokenizer: "Tokenizer"
    max_length: int
    graph: bytes
    runtime: Literal["onnx", "int8"]
    epoch_losses: tuple[float, ...]
    _session: Any = field(init=False)
    stages: ClassVar[tuple[Stage, ...]] = ()

    def __post_init__(self) -> None:
        # Opened at once, so that a damaged graph is refused when it is loaded.
        object.__setattr__(self, "_session", open_session(self.graph, threads=1))

    def __getstate__(self) -> dict[str, Any]:
        """Return everything but the session, which a copy opens for itself."""
        return {name: value for name, value in self.__dict__.items() if name != "_session"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what `__getstate__` returned, and open the graph."""
        self.__dict__.update(state)
        self.__post_init__()

    def score(self, texts: Strings) -> Scores:
        """Score texts, some thousands at a time."""
        nodes, parts = len(self.objective.change.new), []
        for rows in self.objective.portions(len(texts)):
            tokens = first_tokens(self.tokenizer, list(texts.take(rows)), self.max_length)
            parts.append(self.objective.scores_of(self._run(tokens, nodes)).values)
        return Scores.concat(self.objective.hierarchy, parts)

    def _run(self, tokens: list[list[int]], nodes: int) -> FloatArray:
        try:
            return run_graph(self._session, tokens, nodes, self.runtime == "int8")
        except Exception as error:
            # A graph can hold anything, and ONNX Runtime has an exception for each.
            why = str(error).strip().split("\n")[0]
            raise TreelabelError(f"{GRAPH} does not fit the model, or is damaged: {why}") from error

    def state(self) -> tuple[dict[str, Any], Arrays]:
        """Return what is saved: values for JSON, and arrays."""
        values = {"loss": self.objective.name, "runtime": self.runtime, "max_length": self.max_length}
        return {**values, "epoch_losses": list(self.epoch_losses)}, self.objective.arrays()

    def write_files(self, folder: Path) -> None:
        """Write the graph and the tokenizer."""
        (folder / GRAPH).write_bytes(self.graph)
        self.tokenizer.save(str(folder / TOKENIZER))

    @classmethod
    def restore(cls, objective: Objective, values: dict[str, Any], folder: Path) -> "ExportedNetwork":
        """Read what was saved."""
        from tokenizers import Tokenizer

        tokenizer, length = Tokenizer.from_file(str(folder / TOKENIZER)), int(values["max_length"])
        tokenizer.enable_truncation(length)
        graph = (folder / GRAPH).read_bytes()
        return cls(objective, tokenizer, length, graph, values["runtime"], tuple(values["epoch_losses"]))
