"""Accuracy against megabytes of four methods under five codecs, on 5 000 real digits that need no download.

  python -m launch.codecs --out=results/codecs

Ten clients with label skew (Dirichlet, 0.5) and an MLP of 64 units each; 500 rows are public, which FedMD alone uses.
Codecs hold for uploads and downloads, but for `top_k`, which is for uploads alone: of changes, or in FedMD, whose
clients receive nothing like what they send, of logits. Three seeds of one split.
"""

import pathlib

from absl import app, flags

from fedkd.errors import ConfigError
from launch import exits
from launch.studies import codecs


def define_flags():
  """The command line. Called only if this is the main program: others have flags of the same names."""
  flags.DEFINE_list('methods', list(codecs.METHODS), 'Of these four, those to run again. The figure has all.')
  flags.DEFINE_string('out', 'results/codecs', 'Where the results and the figure go.')


def main(argv):
  """Runs the methods, and draws the figure."""
  del argv
  with exits.codes():
    if unknown := set(flags.FLAGS.methods) - set(codecs.METHODS):
      raise ConfigError(f'methods={sorted(unknown)[0]!r} is unknown; choose from {", ".join(codecs.METHODS)}')
    codecs.run(flags.FLAGS.methods, pathlib.Path(flags.FLAGS.out))


if __name__ == '__main__':
  define_flags()
  app.run(main, flags_parser=exits.parse)
