"""Settings of the service."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class ServeOptions:
    """Settings of the service.

    Parameters
    ----------
    state : Path
        The folder of what the service writes: journals of corrections, and versions of models. Made when needed.
    learn : bool
        Whether corrections are accepted, and models may learn from them.
    train : Path or None
        The training data of models that have to learn everything anew.
    evaluation : Path or None
        Labelled documents on which a version must not be worse than the current one to be promoted.
    rules : tuple of Path
        Rules that `tune` wrote, which requests name by their files.
    pool : Path or None
        Texts without labels, for the review queue.
    token_file : Path or None
        Tokens, one "scope token" a line; without it everybody may do everything.
    origins : tuple of str
        Origins of web pages that may call the service (CORS); by default none but its own.
    hosts : tuple of str
        Names by which the service may be called; empty: any.
    max_body : int
        Bytes of a request, but for streams.
    max_documents : int
        Texts of a request, but for streams.
    max_concurrency : int
        Requests that are worked on or wait; more are refused.
    max_seconds : float
        Seconds in which a request must have come in; of a stream, each part.
    watch_seconds : float
        How often to look whether a model folder was replaced.
    max_batch : int
        Texts of several requests that are scored at once.
    """

    state: Path = Path("treelabel-serve")
    learn: bool = False
    train: Path | None = None
    evaluation: Path | None = None
    rules: tuple[Path, ...] = ()
    pool: Path | None = None
    token_file: Path | None = None
    origins: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    max_body: int = 10_000_000
    max_documents: int = 1_000
    max_concurrency: int = 256
    max_seconds: float = 30
    watch_seconds: float = 1
    max_batch: int = 1_024
