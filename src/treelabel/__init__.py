"""treelabel puts texts into a hierarchy of labels, and says honestly how good it is at it.

Public names are loaded when they are first used, so that `import treelabel` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treelabel.core.plots import PLOTS
from treelabel.core.registry import Lazy

__version__ = "0.2.0"

if TYPE_CHECKING:
    from treelabel.core.errors import TreelabelError
    from treelabel.core.limits import Limits
    from treelabel.data.data_file import read_batches
    from treelabel.data.dataset import Dataset
    from treelabel.data.io.registry import FORMATS
    from treelabel.data.joint_reading import read_together
    from treelabel.data.read import read
    from treelabel.data.sample import load_sample
    from treelabel.data.splits import per_class, split
    from treelabel.data.taxonomy.skos import read_alternative_names
    from treelabel.data.taxonomy.taxonomy_files import read_taxonomy, write_taxonomy
    from treelabel.data.taxonomy.taxonomy_tables import read_moves
    from treelabel.data.transforms import (
        cut,
        deduplicate,
        unfold,
        with_other_leaves,
    )
    from treelabel.data.write import write
    from treelabel.evaluation.comparison import compare
    from treelabel.evaluation.evaluator import Evaluator, evaluate
    from treelabel.evaluation.metric_properties import check_metric
    from treelabel.evaluation.predictions import write_predictions
    from treelabel.evaluation.result import Result
    from treelabel.evaluation.scorer import scorer
    from treelabel.evaluation.tuning import back_off_table, tune
    from treelabel.hierarchy.hierarchy import Hierarchy
    from treelabel.hierarchy.moves import Moves
    from treelabel.metrics.registry import METRICS
    from treelabel.models.check import check_model
    from treelabel.models.persistence.load import load_model
    from treelabel.models.persistence.mlflow_flavour import save_mlflow
    from treelabel.models.persistence.store import save_model
    from treelabel.models.registry import MODELS, make_model
    from treelabel.neural.losses.registry import LOSSES
    from treelabel.operations.audit import audit
    from treelabel.operations.batch_scorer import BatchScorer
    from treelabel.operations.fit import PRESETS, fit
    from treelabel.operations.update import update_model
    from treelabel.report.writing import write_report
    from treelabel.rules.decisions import Decisions, TunedRule, decide
    from treelabel.rules.registry import RULES
    from treelabel.scores.score_matrix import Scores

_PLACES = {
    "BatchScorer": "operations.batch_scorer",
    "Dataset": "data",
    "Decisions": "rules",
    "Evaluator": "evaluation",
    "FORMATS": "data",
    "Hierarchy": "hierarchy",
    "LOSSES": "neural.losses.registry",
    "Limits": "core.limits",
    "METRICS": "metrics",
    "MODELS": "models",
    "Moves": "hierarchy.moves",
    "PRESETS": "operations.fit",
    "RULES": "rules",
    "Result": "evaluation",
    "Scores": "scores",
    "TreelabelError": "core.errors",
    "TunedRule": "rules",
    "audit": "operations.audit",
    "back_off_table": "evaluation.tuning",
    "check_metric": "evaluation.metric_properties",
    "check_model": "models.check",
    "compare": "evaluation",
    "cut": "data",
    "decide": "rules",
    "deduplicate": "data",
    "evaluate": "evaluation",
    "fit": "operations.fit",
    "load_model": "models",
    "load_sample": "data",
    "make_model": "models",
    "per_class": "data",
    "read": "data",
    "read_alternative_names": "data",
    "read_batches": "data",
    "read_moves": "data",
    "read_taxonomy": "data",
    "read_together": "data",
    "save_mlflow": "models.persistence.mlflow_flavour",
    "save_model": "models",
    "scorer": "evaluation.scorer",
    "split": "data",
    "tune": "evaluation.tuning",
    "unfold": "data",
    "update_model": "operations.update",
    "with_other_leaves": "data",
    "write": "data",
    "write_predictions": "evaluation.predictions",
    "write_report": "report",
    "write_taxonomy": "data",
}

__all__ = [
    "FORMATS",
    "LOSSES",
    "METRICS",
    "MODELS",
    "PRESETS",
    "RULES",
    "BatchScorer",
    "Dataset",
    "Decisions",
    "Evaluator",
    "Hierarchy",
    "Limits",
    "Moves",
    "Result",
    "Scores",
    "TreelabelError",
    "TunedRule",
    "audit",
    "back_off_table",
    "check_metric",
    "check_model",
    "compare",
    "cut",
    "decide",
    "deduplicate",
    "evaluate",
    "fit",
    "load_model",
    "load_sample",
    "make_model",
    "per_class",
    "read",
    "read_alternative_names",
    "read_batches",
    "read_moves",
    "read_taxonomy",
    "read_together",
    "save_mlflow",
    "save_model",
    "scorer",
    "split",
    "tune",
    "unfold",
    "update_model",
    "with_other_leaves",
    "write",
    "write_predictions",
    "write_report",
    "write_taxonomy",
]


# Objects of lower rooms are drawn by reports, which those rooms cannot import.
PLOTS.add(Lazy("a result", "metrics with intervals, and macro-F1 by depth", "report.plots:plot_result"))
PLOTS.add(Lazy("calibration", "how often labels are right over their probability", "report.plots:plot_calibration"))
PLOTS.add(Lazy("a hierarchy", "levels as rows, labels as wide as what is under them", "report.plots:plot_hierarchy"))

if not TYPE_CHECKING:
    # Hidden from type checkers, for which every name would exist otherwise.
    def __getattr__(name: str) -> Any:
        if name not in _PLACES:
            raise AttributeError(f"treelabel has no {name!r}; it has {', '.join(__all__)}")
        return getattr(import_module(f"treelabel.{_PLACES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
