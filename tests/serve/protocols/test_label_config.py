import pytest

from treelabel.core.errors import TreelabelError
from treelabel.data.io.label_studio import label_config
from treelabel.hierarchy.hierarchy import Hierarchy
from treelabel.serve.protocols.label_config import DEEPEST, LabelConfig, read_label_config

TEXT = '<Text name="t" value="$body"/>'


def config(control: str, labelled: str = TEXT) -> LabelConfig:
    return read_label_config(f"<View>{labelled}<View>{control}</View></View>")


def test_what_treelabel_writes_is_read() -> None:
    h = Hierarchy.from_paths(['A > B & "C"', "A > D > E", "é"])
    read = read_label_config(label_config(h))
    assert (read.kind, read.from_name, read.to_name, read.key) == ("taxonomy", "labels", "text", "text")
    assert sorted(read.written) == sorted(tuple(h.path_names(node)) for node in range(len(h)))
    flat = read_label_config(label_config(Hierarchy.flat(["A", "B"])))
    assert (flat.kind, flat.most, sorted(flat.written)) == ("choices", None, [("A",), ("B",)])


def test_a_path_is_cut_where_the_project_ends() -> None:
    tree = config('<Taxonomy name="l" toName="t"><Choice value="A"><Choice value="B" alias="b"/></Choice></Taxonomy>')
    assert tree.write(["A", "B", "C"]) == ("A", "b")
    assert tree.write(["A", "C"]) == ("A",)
    assert tree.write(["B"]) is None
    assert tree.read(["A", "b"]) == ["A", "B"]
    assert tree.read(["A", "C"]) == ["A", "C"]


def test_choices_are_the_deepest_names_of_a_path() -> None:
    flat = config('<Choices name="l" toName="t"><Choice value="A"/><Choice value="B" alias="b"/></Choices>')
    assert flat.write(["A", "B", "C"]) == ("b",)
    assert flat.write(["A", "D"]) == ("A",)
    assert flat.write(["D"]) is None
    assert flat.read(["b"]) == ["B"]
    assert flat.most == 1


def test_labels_from_elsewhere_are_all_allowed() -> None:
    assert config('<Taxonomy name="l" toName="t" apiUrl="tree.json"/>').write(["A", "B"]) == ("A", "B")
    assert config('<Choices name="l" toName="t" value="$options"/>').write(["A", "B"]) == ("B",)


def test_limits_of_the_tag_are_read() -> None:
    tree = config(
        '<Taxonomy name="l" toName="t" maxUsages="2" leafsOnly="true"><Choice value="A"><Choice value="B"/></Choice>'
        "</Taxonomy>"
    )
    assert tree.most == 2
    assert tree.write(["A", "C"]) is None
    assert tree.write(["A", "B"]) == ("A", "B")
    assert config('<Choices name="l" toName="t" choice="multiple"/>').most is None


def test_a_taxonomy_goes_before_choices_and_others_are_passed_over() -> None:
    both = (
        '<Rating name="r" toName="t"/><Choices name="c" toName="t"><Choice value="A"/></Choices>'
        '<Taxonomy name="l" toName="t,u"><Choice value="B"/></Taxonomy>'
    )
    assert (config(both).from_name, dict(config(both).written)) == ("l", {("B",): ("B",)})


@pytest.mark.parametrize(
    "xml",
    [
        "",
        "plain",
        "<View>",
        f"<View>{TEXT}</View>",
        f'<View>{TEXT}<Taxonomy name="l" toName="other"/></View>',
        f'<View>{TEXT}<Taxonomy toName="t"/></View>',
        '<View><Text name="t" value="$body" valueType="url"/><Taxonomy name="l" toName="t"/></View>',
        '<View><Text name="t" value="fixed"/><Taxonomy name="l" toName="t"/></View>',
        f'<!DOCTYPE View [<!ENTITY a "b">]><View>{TEXT}<Taxonomy name="l" toName="t"/></View>',
        f'<!DOCTYPE View SYSTEM "file:///etc/passwd"><View>{TEXT}<Taxonomy name="l" toName="t"/></View>',
        "<View>" * (DEEPEST + 1),
        " " * 8_000_001,
    ],
)
def test_what_no_text_can_be_labelled_with_is_refused(xml: str) -> None:
    with pytest.raises(TreelabelError, match=r"^label config: "):
        read_label_config(xml)


def test_entities_are_not_expanded() -> None:
    nested = "".join(f'<!ENTITY e{n} "{f"&e{n - 1};" * 10}">' for n in range(1, 12))
    xml = f'<!DOCTYPE View [<!ENTITY e0 "lol">{nested}]><View><Text name="&e11;" value="$t"/></View>'
    with pytest.raises(TreelabelError, match="document type"):
        read_label_config(xml)
