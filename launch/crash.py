"""Injects a fault at every file operation of a run and checks that resuming changes nothing.

  python -m launch.crash --json=results/crash.json                 # every case and fault: hours
  python -m launch.crash --cases=fedhe --faults=kill --every=10    # each tenth operation of one run
  python -m launch.crash --cases=fedhe,fedhe-store --faults=kills --count=20 --trials=FILE    # goes on where it stopped

A small run is started again and again. A library (`tests/shim.c`, built with `cc`) counts its operations on files and
at the chosen one lets it and all later ones fail, ends the process, or copies the directory: what a process that is
killed there leaves. What must hold: the run, started again, ends with the state and the metrics of an unbroken one, or
is refused with one sentence; nothing else.
"""

import argparse

from launch.tools.crash import harness


def arguments():
  """The command line."""
  parser = argparse.ArgumentParser(prog='python -m launch.crash', description=__doc__.split('\n')[0])
  parser.add_argument('--json', help='where the figures go; those of other cases and faults there stay')
  parser.add_argument('--trials', help='a line of JSON per trial goes there; what it has already is not tried again')
  parser.add_argument('--cases', default='', help='some of launch.tools.crash.cases.NAMES')
  parser.add_argument('--faults', default='', help=f'some of {", ".join(harness.INSIDE + harness.FORKED)}')
  parser.add_argument('--every', type=int, default=1, help='of the operations at which something happens')
  parser.add_argument('--count', type=int, default=20, help='of damaged files and of processes')
  parser.add_argument('--seed', type=int, default=0, help='of what is drawn at random')
  return parser.parse_args()


def main():
  """The command."""
  harness.run(arguments())


if __name__ == '__main__':
  main()
