"""Which small changes of the library's losses, servers and codecs would no test notice?

python -m launch.mutate [--only=fedgen,servers] [--match=penalty] [--kinds=term,stop,swap] [--list] [--again]

For every mutant of a file (`launch.mutants`) its tests run, those of the file's name first and the slow ones last,
until one fails; a mutant with which all pass has survived. Nothing is written to the sources: each trial is a process
of its own, forked after everything but the library is imported, that reads the mutant in the file's place. Trials are
kept in `--results`, a line of JSON each, and made once; `--again` repeats those that survived. Mutants in `EQUIVALENT`
are not tried. Exits with 1 if there are survivors.
"""

import argparse
import pathlib
import sys

from launch.tools.mutation import mutants, search


def parsed() -> argparse.Namespace:
  """The command line."""
  words = lambda text: text.split(',')
  parser = argparse.ArgumentParser('python -m launch.mutate', description=__doc__.partition('\n')[0])
  parser.add_argument('--only', type=words, default=[], help='names of files, without .py, or of their folders; or all')
  parser.add_argument('--match', default='', help='a regular expression in the names that --list prints')
  parser.add_argument('--kinds', type=words, default=[*mutants.KINDS, mutants.SWAP], help='kinds of mutants')
  parser.add_argument('--list', action='store_true', help='print the mutants, and try none')
  parser.add_argument('--again', action='store_true', help='try those that survived once more')
  parser.add_argument('--stages', type=int, default=4, help='how many of the sets of tests are tried')
  parser.add_argument('--results', default='runs/mutants.jsonl', help='what was tried, a line each')
  parser.add_argument('--root', default=str(pathlib.Path(__file__).parents[1]), help='the checkout')
  return parser.parse_args()


def main():
  """The command."""
  sys.exit(search.run(parsed()))


if __name__ == '__main__':
  main()
