"""Studies: the tables of the papers, methods at equal budgets, codecs."""
