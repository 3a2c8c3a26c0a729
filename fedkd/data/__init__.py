"""Real images and how clients share them: `sources` loads, `partition` deals rows to clients, `split` says what each
is for, `transforms` normalises.

Everything here runs on the host in NumPy, before training; TensorFlow Datasets is imported only by a source
that needs it.
"""
