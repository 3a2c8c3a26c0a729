"""Sphinx: `./launch/docs.sh`. Pages of methods and modules are made from their docstrings."""

import pathlib
import sys

DOCS = pathlib.Path(__file__).parent
sys.path[:0] = [str(DOCS), str(DOCS.parent)]

import reference  # noqa: E402

import fedkd  # noqa: E402

project = 'fedkd'
version = release = fedkd.__version__
extensions = ['myst_parser']
exclude_patterns = ['_build']
html_theme = 'furo'
html_title = 'fedkd'
myst_heading_anchors = 3

reference.write(DOCS)
