"""`python -m fedkd`: the command `fedkd`."""

import sys

from fedkd.cli import main

if __name__ == '__main__':
  sys.exit(main())
