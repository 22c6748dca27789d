"""The configuration of the documentation's site: `make docs` builds docs/ with Sphinx.

The pages stay plain Markdown, so that they read the same in a repository browser. All that only the site needs is here:
navigation, pictures, links to files outside of docs/, and the terms of the glossary.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent
sys.path[:0] = [str(ROOT), str(HERE)]

from manifest_platform import __version__  # noqa: E402

project = "manifest_platform"
author = "the authors of manifest_platform"
release = version = __version__

extensions = ["myst_parser", "sphinx_copybutton", "pictures", "markdown_pages"]
root_doc = "index"
language = "en"
nitpicky = True

myst_enable_extensions = ["tasklist"]
myst_fence_as_directive = ["mermaid"]
myst_heading_anchors = 4
suppress_warnings = ["myst.strikethrough"]

html_theme = "furo"
html_title = f"manifest_platform {release}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_show_copyright = False
html_copy_source = False
html_theme_options = {"navigation_with_keys": True}
copybutton_exclude = ".linenos, .gp, .go"
