"""Real images and how clients share them: `sources` loads, `partition` assigns rows to clients, `split`
divides them by use, `transforms` normalises.

Everything here runs on the host in NumPy, before training; TensorFlow Datasets is imported only by a source
that needs it.
"""
