"""The settings of Sphinx for the site: `make docs` builds it into build/docs.

The repository is the source folder, so that links between the pages are the same on GitHub and in the site.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from streamjoin_ds import __version__  # noqa: E402

project = "streamjoin_ds"
author = "the authors of streamjoin_ds"
version = release = __version__
root_doc = "docs/index"
include_patterns = [
    *("docs/**.md", "README.md", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "RELEASE.md", "RUNBOOK.md"),
    *("examples/*/README.md", "streamjoin_ds/_data/*/README.md"),
]
exclude_patterns = [".*", "build", "tests", "cython_kernels", "sql", "docs/site"]
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "numpydoc",
    "docs.site.navigation",
    "docs.site.docstrings",
    "docs.site.pictures",
]

myst_heading_anchors = 4
myst_links_external_new_tab = False
numpydoc_show_class_members = False
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # the docstrings say them
nitpicky = True
suppress_warnings = ["myst.xref_ambiguous"]

html_theme = "pydata_sphinx_theme"
html_title = "streamjoin_ds"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "logo": {"text": "streamjoin_ds"},
    "navbar_align": "left",
    "header_links_before_dropdown": 8,
    "navbar_persistent": ["search-button"],
    "navbar_end": ["theme-switcher"],
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "show_prev_next": True,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_sidebars = {"docs/index": [], "docs/concepts": []}
copyright = "2026, the authors of streamjoin_ds"
