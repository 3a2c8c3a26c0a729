"""A table of one's own, CSV or Parquet: two architectures, a client for each of its users.

  fedkd run table:data=mine.csv,label=outcome,user=hospital,clients=6,method=fedhe --workdir=runs/fedhe

`data`: the file. `label`: the column to learn, by default `label`. `user`: the column that says who owns each row;
`clients` is then the number of its values, and without it rows are dealt out at random. All other columns are what is
learned from. `small`: 60 rounds, seconds on two cores; `smoke`: 2 rounds. Without `data`, the digits of mnist_5k.
A method that learns from public rows takes `--config.data.public_share=0.1`, one of equal or nested networks other
`groups`: without them it is refused in a sentence that says so.

Measured with `small` on the table that `docs/guides/data.md` makes (2-core CPU, seeds 0, 1, 2), test accuracy in per
cent: private 56.79 ± 2.53, fedhe 55.29 ± 3.51; paired -1.50 ± 1.39.
"""

from fedkd import config as base

NETS = ({'model': 'MLP', 'hidden': (32,)}, {'model': 'MLP', 'hidden': (64, 32)})
MISSING = ('refuse', 'mean', 'median')
TURN = {'steps': 5, 'epochs': None, 'batch': 32}  # of every method that counts client updates in steps
COMMON = {'model': 'MLP', 'hidden': (32,)}  # of methods whose clients share a small model


def method(name):
  """The block of a method, with what it takes of `TURN` and `COMMON`."""
  takes = base.parameters_of(base.resolve(name, base.KINDS['method'].choices, 'method.name'))
  given = TURN if 'steps' in takes else {'batch': TURN['batch']}
  return base.method(name, **{field: value for field, value in {**given, 'common': COMMON}.items() if field in takes})


def get_config(arg=''):
  choice = base.parse(
    arg, ('small', 'smoke'), data='', label='label', user='', clients='6', method='fedhe', missing=MISSING
  )
  config = base.default()
  config.name = 'table'
  config.method = method(choice.method)
  config.groups = NETS
  if choice.data:
    config.data.update({'name': f'table:{choice.data}', 'missing': choice.missing})
    config.data.update({'label': choice.label, 'user': choice.user})
  if choice.user:
    config.data.partition = base.partition('by_origin')
  config.data.clients = base.number('clients', choice.clients, int, least=len(NETS))
  config.optimizer.learning_rate = 3e-3
  config.seeds, config.rounds, config.eval_every, config.eval_rows = (0, 1, 2), 60, 20, 0
  if choice.profile == 'smoke':
    config.seeds, config.rounds, config.eval_every = (0,), 2, 1
  return base.finish(config, choice)
