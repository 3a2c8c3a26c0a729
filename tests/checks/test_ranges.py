import re

import optax
import pytest

from fedkd import methods, plan
from fedkd.errors import ConfigError


@pytest.mark.parametrize(
  ('make', 'error', 'sentence'),
  [
    (
      lambda: methods.fedavg(optax.sgd(0.1), batch_size=3),
      ConfigError,
      "fedavg has no argument 'batch_size'; it has tx",
    ),
    (lambda: plan.sampled(rate=0.2), ConfigError, "sampled has no argument 'rate'; it has ratio"),
    (methods.fedhe, TypeError, 'fedhe(tx, steps, epochs, batch, alpha, '),
    (lambda: methods.private(*range(9)), TypeError, 'private(tx, steps, epochs, batch, '),
  ],
)
def test_what_does_not_fit_a_signature_names_the_factory_and_its_arguments(make, error, sentence):
  with pytest.raises(error, match=re.escape(sentence)):
    make()
