"""The configuration of the documentation's site: `make docs` builds docs/ with Sphinx.

The pages stay plain Markdown, so that they read the same in a repository browser. All that only the site needs is here:
navigation, pictures, links to files outside of docs/, and the terms of the glossary.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

import dagster  # noqa: E402, F401 - before autodoc, which sets TYPE_CHECKING while it imports

from manifest_platform import __version__  # noqa: E402

project = "manifest_platform"
author = "the authors of manifest_platform"
release = version = __version__

extensions = ["myst_parser", "docstrings", "sphinx_copybutton", "pictures", "markdown_pages"]
root_doc = "index"
language = "en"
nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types in signatures: a link where the page of the type exists

myst_enable_extensions = ["tasklist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
suppress_warnings = ["ref.python"]  # a type of a signature may be documented under two names

html_theme = "furo"
html_title = f"manifest_platform {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"

# The reference from docstrings.
autodoc_default_options = {"members": True, "undoc-members": True, "member-order": "bysource", "show-inheritance": True}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
add_module_names = False
logging.getLogger("alembic").setLevel(logging.WARNING)  # Dagster's, which reports its own start
