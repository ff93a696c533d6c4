from importlib import import_module

import pytest

from treelabel import FORMATS, LOSSES, METRICS, MODELS, RULES
from treelabel.core.errors import TreelabelError
from treelabel.core.registry import Lazy, Registry, did_you_mean
from treelabel.encoders.registry import ENCODERS
from treelabel.models.linear.heads import HEADS

REGISTRIES = [ENCODERS, FORMATS, HEADS, LOSSES, METRICS, MODELS, RULES]


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda registry: registry.what)
def test_every_public_registry_lists_itself(registry: Registry) -> None:  # type: ignore[type-arg]
    assert isinstance(registry, Registry)
    assert registry.names == tuple(registry)
    assert all(registry.find(name) is registry[name] and registry[name].name == name for name in registry)
    assert all(registry.help().values())
    lines = registry.listing()
    assert [line.split()[0] for line in lines] == list(registry)
    assert repr(registry).splitlines()[1:] == [f"  {line}" for line in lines]


def test_every_registry_stands_in_the_file_of_its_package() -> None:
    files = ("encoders.registry", "data.io.registry", "models.linear.heads", "neural.losses.registry")
    modules = [
        import_module(f"treelabel.{name}") for name in (*files, "metrics.registry", "models.registry", "rules.registry")
    ]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Registry)]
    assert all(any(registry is each for each in found) for registry in REGISTRIES)


def test_an_unknown_name_is_answered_with_the_nearest_or_with_all() -> None:
    with pytest.raises(TreelabelError, match="unknown model 'liner'; did you mean linear"):
        MODELS.find("liner")
    with pytest.raises(TreelabelError, match="unknown format 'zzz'; there are: csv, tsv, jsonl"):
        FORMATS.find("zzz")


def test_a_row_is_added_for_good_or_for_a_while_and_never_hides_another() -> None:
    rows: Registry[Lazy[object]] = Registry("thing", [])
    text: Lazy[object] = Lazy("text", "a column of texts", "core.strings:Strings")
    with rows.adding(text):
        assert rows.find("text") is text
        with pytest.raises(TreelabelError, match="there is already a thing 'text'; choose another name"):
            rows.add(text)
    with pytest.raises(KeyError, match="image"), rows.adding(text):
        rows["image"]
    assert "text" not in rows
    rows.add(text)
    assert list(rows) == ["text"]


def test_several_names_may_be_near_and_are_shown_as_asked() -> None:
    assert did_you_mean("hf", ["hf1", "hf2", "x"], most=2, shown=repr) == "did you mean 'hf2' or 'hf1'?"
    assert did_you_mean("hf", []) == ""


def test_a_lazy_row_is_imported_when_it_is_asked_for() -> None:
    row: Lazy[object] = Lazy("text", "a column of texts", "core.strings:Strings")
    assert row.maker.__name__ == "Strings"
