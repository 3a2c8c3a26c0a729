"""Prints class and probability of image files; also the command `fedkd predict`.

python -m launch.predict RUN --client=3 IMAGE IMAGE ... [--seed=SEED] [--resize] [--trust]
"""

from collections.abc import Sequence

from absl import flags

from fedkd.errors import ConfigError
from launch import exits


def main(words: Sequence[str] | None = None) -> None:
  """Prints a line per image."""
  values = flags.FlagValues()
  flags.DEFINE_integer('client', 0, 'Number of the client.', flag_values=values)
  flags.DEFINE_integer('seed', None, "One of the run's seeds; the first.", flag_values=values)
  flags.DEFINE_bool('resize', False, 'Resize images of another size.', flag_values=values)
  flags.DEFINE_bool('trust', False, 'The run may name code of your own.', flag_values=values)
  with exits.codes():
    given = exits.parsed(words, values)
    if len(given) < 2:
      raise ConfigError('give a run and at least one image, as in runs/first --client=3 digit.png')
    from fedkd.experiment.predict import predict

    for one in predict(given[0], given[1:], values.client, values.seed, values.resize, values.trust):
      print(f'{one.path}\t{one.label}\t{one.probability:.4f}')


if __name__ == '__main__':
  main()
