"""Finished runs side by side, as one page for a browser or as an appendix: a question, tables, figures, configs, and
how to run it again."""

from fedkd.report.write import report

__all__ = ['report']
