"""One small model of single paths and one of several labels, fitted once; an app that serves both."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from treelabel.data.sample import load_sample
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.models.registry import make_model
from treelabel.serve.app import create_app
from treelabel.serve.options import ServeOptions

# The client of an app that serves some folders with some options.
Client = Callable[..., TestClient]


@pytest.fixture(scope="session")
def nouns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a linear model of single paths, of a tenth of the sample."""
    folder = tmp_path_factory.mktemp("models") / "nouns"
    make_model("linear").fit(load_sample()[::10], progress=False).save(folder)
    return folder


@pytest.fixture(scope="session")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model of several labels per text, whose labels have URIs and notations.

    Beside it are `train.jsonl`, its training data, and `memories`, a model of the same data that can take in more.
    """
    folder = tmp_path_factory.mktemp("models") / "topics"
    h = Hierarchy.from_paths(["science > physics", "science > biology", "arts > music", "arts > painting"])
    uris = [f"http://example.org/{name}" for name in h.names]
    h = h.with_identifiers(uris, [f"N{node}" for node in range(len(h))])
    words = {"physics": "quark energy field", "biology": "cell gene animal", "music": "song choir violin"}
    words |= {"painting": "canvas oil portrait"}
    pairs = [(one, two) for one in words for two in words if one <= two] * 8
    texts = [f"{words[one]} and {words[two]} number {row}" for row, (one, two) in enumerate(pairs)]
    labels = [sorted({*pair}) for pair in pairs]
    make_model("linear", hierarchy=h).fit(texts, labels, progress=False).save(folder)
    make_model("memory", hierarchy=h).fit(texts, labels, progress=False).save(folder.with_name("memories"))
    rows = [{"text": text, "labels": names} for text, names in zip(texts, labels, strict=True)]
    train = "".join(json.dumps(row) + "\n" for row in rows)
    folder.with_name("train.jsonl").write_text(train, encoding="utf-8")
    return folder


@pytest.fixture
def serve(nouns: Path, topics: Path, tmp_path: Path) -> Iterator[Client]:
    """Start an app in this process; by default both models, with a state folder of its own."""
    with ExitStack() as stack:

        def start(*folders: Path, **options: object) -> TestClient:
            settings = ServeOptions(**{"state": tmp_path / "state", **options})  # type: ignore[arg-type]
            app = create_app(folders or (nouns, topics), settings)
            return stack.enter_context(TestClient(app))

        yield start


@pytest.fixture(scope="session")
def client(nouns: Path, topics: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """An app that serves both models and is not changed by tests."""
    options = ServeOptions(state=tmp_path_factory.mktemp("state"))
    with TestClient(create_app([nouns, topics], options)) as made:
        yield made
