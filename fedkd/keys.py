"""Numbers that are folded into keys for one purpose.

`fold_in(key, i)` is the i-th key of `split(key)`, and rounds, clients and steps are folded in as small numbers, which
reach none of these.
"""

UP = 2**31 - 1  # of a client's key: how its upload is encoded
DOWN = 2**31 - 2  # of the server's key in `send`: how downloads are encoded
FIRST = 2**31 - 3  # of a run's key: states before the first round
DISTILLATION = 2**31 - 4  # of a client's or step's key: learning from others, beside its own examples
MIX = 2**31 - 5  # of a client's key: how features are mixed
CHOICE = 2**31 - 6  # of a step's key: which of several networks learns
