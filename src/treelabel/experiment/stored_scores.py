"""The systems of a study with the scores that were kept, for whoever wants to look at more than metrics."""

from dataclasses import dataclass

from treelabel.core.errors import TreelabelError, quote
from treelabel.core.registry import suggestion
from treelabel.data.dataset import Dataset
from treelabel.experiment.data_sets import content_hash, load_parts
from treelabel.experiment.results import Results
from treelabel.scores.score_matrix import Scores


@dataclass(frozen=True, eq=False)
class StoredScores:
    """The documents of a data set, and the scores of every system that kept them, by title."""

    title: str
    train: Dataset
    test: Dataset
    systems: dict[str, Scores]


def load_stored_scores(results: Results, data: str | None = None) -> StoredScores:
    """Read a data set of a study again, and the scores of its systems with their first seed.

    Parameters
    ----------
    results : Results
        From a folder.
    data : str, optional
        The data set; needed where the study has several with scores.

    Returns
    -------
    Kept
    """
    folder = results.folder
    if folder is None:
        raise TreelabelError("an exported file has no scores; expected a folder that `treelabel bench` wrote")
    runs = [run for run in results.runs if run.is_done and (folder / "scores" / f"{run.key}.npz").is_file()]
    altered = next((run for run in runs if results.scores_file(run) is None), None)
    if altered is not None:
        raise TreelabelError(
            f"{folder}: scores/{altered.key}.npz is not what the run wrote; run the study again with --keep-scores"
        )
    names = list(dict.fromkeys(run.data for run in runs))
    if not names:
        raise TreelabelError(f"{folder}: no run kept its scores; run the study again with --keep-scores")
    if data is None and len(names) > 1:
        raise TreelabelError(f"{folder}: has scores on {', '.join(names)}; choose one with --data")
    name = names[0] if data is None else data
    if name not in names:
        raise TreelabelError(f"{folder}: no scores on {quote(name)}; {suggestion(name, names)}")
    spec = results.spec.data[name]
    seed = min(run.seed for run in runs if run.data == name)
    chosen = [run for run in runs if run.data == name and run.seed == seed]
    if content_hash(spec, results.spec.folder) != chosen[0].data_hash:
        raise TreelabelError(f"the files of {name} have changed since the study was run; run it again")
    parts = load_parts(spec, results.spec.folder, seed)
    order = {system: index for index, system in enumerate(results.spec.systems)}
    systems = {
        results.spec.system_title(run.system): Scores.load(folder / "scores" / f"{run.key}.npz", parts.test.hierarchy)
        for run in sorted(chosen, key=lambda run: order[run.system])
    }
    return StoredScores(f"{results.spec.title}: {results.spec.data_title(name)}", parts.train, parts.test, systems)
