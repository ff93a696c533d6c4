"""How Sphinx builds the site: `make docs`. Nothing on a page is loaded from another address."""

import sys
from pathlib import Path

from docutils import nodes
from docutils.utils.math import latex2mathml
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx_gallery.scrapers import figure_rst

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import treelabel  # noqa: E402
from tools import site_content  # noqa: E402

project = "treelabel"
author = "The treelabel developers"
project_copyright = author
version = release = treelabel.__version__

extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "generated_tables", "**/sg_execution_times.rst", "sg_execution_times.rst"]
# Functions in sphinx_gallery_conf.
suppress_warnings = ["config.cache"]

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
myst_heading_anchors = 4
autosummary_generate = True
autodoc_typehints = "none"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

html_theme = "pydata_sphinx_theme"
html_title = f"treelabel {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sourcelink = False
html_copy_source = True
html_math_renderer = "mathml"
html_context = {"default_mode": "auto"}
html_favicon = "_static/tree.svg"
html_theme_options = {
    "logo": {"text": "treelabel", "image_light": "_static/tree.svg", "image_dark": "_static/tree.svg"},
    "github_url": "https://github.com/treelabel/treelabel",
    "header_links_before_dropdown": 5,
    "show_prev_next": True,
    "navigation_with_keys": False,
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
}
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True


def save_figures(block: tuple[str, str, int], variables: dict[str, object], gallery: dict[str, object]) -> str:
    """Save the figures that a block of an example made: they are not pyplot's."""
    paths = []
    known = variables.setdefault("known_figures", [])
    for value in variables["example_globals"].values():  # type: ignore[attr-defined]
        if isinstance(value, Figure) and value not in known:  # type: ignore[operator]
            known.append(value)  # type: ignore[attr-defined]
            paths.append(next(variables["image_path_iterator"]))  # type: ignore[call-overload]
            value.savefig(paths[-1], dpi=110)
    return figure_rst(paths, gallery["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": str(HERE.parent / "examples"),
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"\.py$",
    "image_scrapers": (save_figures,),
    "plot_gallery": True,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "min_reported_time": 3600,
    "remove_config_comments": True,
    "show_memory": False,
    "show_signature": False,
}


def visit_math(translator: object, node: nodes.math | nodes.math_block) -> None:
    """Write a formula as MathML, which browsers draw without a script."""
    tree = latex2mathml.tex2mathml(node.astext(), as_block=isinstance(node, nodes.math_block))
    translator.body.append(tree)  # type: ignore[attr-defined]
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Make the pages that come from the code, and list all pages for language models."""
    site_content.write_tables(HERE / "generated_tables")
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math, None))
    app.connect("build-finished", site_content.write_llms_txt)
