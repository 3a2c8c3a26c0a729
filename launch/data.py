"""Lists the available data sets, and prepares others; also the command `fedkd data`.

  python -m launch.data list [--dir=DIR]
  python -m launch.data prepare NAME [--dir=DIR]

DIR is the directory of prepared sets, by default $TFDS_DATA_DIR or ~/tensorflow_datasets. Folders of images and .npz
files are also looked for in $FEDKD_IMAGES.
"""

import argparse

from fedkd.data import catalogue
from launch import exits


def main(words=None, program='python -m launch.data'):
  """Runs `list` or `prepare`."""
  form = argparse.RawDescriptionHelpFormatter
  text = __doc__.replace('python -m launch.data', program).replace('; also the command `fedkd data`', '')
  flags = argparse.ArgumentParser(
    prog=program, usage=f'{program} list | prepare NAME', description=text, formatter_class=form
  )
  commands = flags.add_subparsers(dest='command', prog=program, metavar='list | prepare')
  commands.add_parser(
    'list', usage=f'{program} list [--dir=DIR]', help='which sets are there, and how to get the others'
  )
  usage = f'{program} prepare NAME [--dir=DIR]'
  prepare = commands.add_parser('prepare', usage=usage, help='have a set downloaded and converted, or decoded once')
  prepare.add_argument('name', help='as in data.name, for example mnist or emnist/letters')
  for command in commands.choices.values():
    command.add_argument('--dir', help='where prepared sets lie')
  args = flags.parse_args(words)
  with exits.codes():
    if args.command == 'prepare':
      print(catalogue.prepare(args.name, args.dir))
    elif args.command == 'list':
      print(catalogue.table(catalogue.entries(args.dir)))
    else:
      flags.print_help()


if __name__ == '__main__':
  main()
