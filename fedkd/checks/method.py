"""What a method is made of: parts of the right kinds, before any of them is called."""

from collections.abc import Callable
from typing import Any

from fedkd.checks.kinds import check_is, what_is
from fedkd.errors import ConfigError
from fedkd.types import Client, Method, Server

CLIENT = {
  'init': '(key, model, data, variables) -> state',
  'step': '(key, t, model, state, download, data) -> (state, upload, info)',
}
SERVER = {
  'init': '(key, groups, variables, data) -> state',
  'receive': '(key, t, groups, state, uploads, ids, data) -> (state, info)',
  'send': '(key, t, groups, state, ids, data) -> a Download per group',
}
FUNCTIONS = {
  'variables': "(state, g) -> {'params', 'batch_stats'} of the clients of group g",
  'predict': '(model, variables, server_state, x) -> logits',
  'calibrate': '(groups, state, data, which) -> state, or None',
  'deployed': '(model, variables, server_state, g) -> (module, variables)',
}


def check_method(method: Any) -> None:
  """Checks that a method has the parts that `types.Method` says.

  Raises:
    ConfigError: for the first that is of another kind.
  """
  check_is('method', method, Method, 'a method such as fedkd.methods.fedhe(optax.adam(1e-3))')
  check_is('method.client', method.client, Client, 'fedkd.Client(init, step)')
  check_is('method.server', method.server, Server, 'fedkd.Server(init, receive, send), or fedkd.servers.silent()')
  for where, part, functions in (('client.', method.client, CLIENT), ('server.', method.server, SERVER)):
    _check_functions(where, part, functions)
  _check_functions('', method, FUNCTIONS)
  for pair in method.predictions if isinstance(method.predictions, tuple | list) else (method.predictions,):
    if not isinstance(pair, tuple | list) or len(pair) != 2 or not (isinstance(pair[0], str) and callable(pair[1])):
      raise ConfigError(
        f'method.predictions has {what_is(pair)}; give pairs of a name and a function {FUNCTIONS["predict"]}'
      )


def _check_functions(where, part, functions):
  for name, signature in functions.items():
    function: Callable | None = getattr(part, name)
    if not callable(function) and (name != 'calibrate' or function is not None):
      raise ConfigError(f'method.{where}{name} is {what_is(function)}; give a function {signature}')
