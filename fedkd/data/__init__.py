"""Real data and how clients share them: `sources` loads, `splits` assigns rows to clients and divides them by use,
`transforms` normalises.

Everything here runs on the host in NumPy, before training; TensorFlow Datasets is imported only by a source
that needs it.
"""

from fedkd.data.splits import partition, personal_splits, skews, split

own_test = personal_splits  # as notebooks know it

__all__ = ['own_test', 'partition', 'personal_splits', 'skews', 'split']
