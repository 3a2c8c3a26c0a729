"""Writes a client's model of a finished run for the Hugging Face hub or for PyTorch; also the command `fedkd export`.

python -m launch.export RUN --client=3 --out=DIR [--to=flax|torch] [--seed=SEED] [--licence=NAME] [--trust]
"""

from collections.abc import Sequence

from absl import flags

from fedkd.errors import ConfigError
from launch import exits


def main(words: Sequence[str] | None = None) -> None:
  """Exports, and says what was written."""
  values = flags.FlagValues()
  flags.DEFINE_integer('client', 0, 'Number of the client.', flag_values=values)
  flags.DEFINE_integer('seed', None, "One of the run's seeds; the first.", flag_values=values)
  flags.DEFINE_string('out', None, 'A new or empty directory.', flag_values=values)
  flags.DEFINE_string('to', 'flax', 'flax or torch.', flag_values=values)
  flags.DEFINE_string('licence', 'unknown', 'Of the weights, such as apache-2.0.', flag_values=values)
  flags.DEFINE_bool('trust', False, 'The run may name code of your own.', flag_values=values)
  with exits.codes():
    given = exits.parsed(words, values)
    if len(given) != 1 or not values.out:
      raise ConfigError('give one run and --out, as in runs/first --client=3 --out=exported')
    from fedkd.experiment.export.writing import export

    out = export(
      *(given[0], values.client, values.out),
      seed=values.seed,
      to=values.to,
      licence=values.licence,
      trust=values.trust,
    )
    print(f'{out}: {", ".join(sorted(path.name for path in out.iterdir()))}')


if __name__ == '__main__':
  main()
