"""The Flower side of `launch.bench`: the loop of `torch_loop.py` as a simulation with one actor per core.

A client's weights lie in its Flower context between rounds, as in Flower's guide to stateful clients, and its Adam
state is new every round, as in Flower's examples: less to keep and to move than fedkd and the PyTorch loop have. Only
the instruction to train is sent. Flower polls for messages at 10 Hz, so that rounds of less than
half a second measure the polling rather than the training.
"""

import contextlib
import functools
import os
import time

os.environ['FLWR_TELEMETRY_ENABLED'] = '0'  # before flwr is imported

import torch
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import ServerApp
from flwr.simulation import run_simulation

from launch.tools.speed import parts, torch_loop
from launch.tools.speed.torch_nets import build

LIMIT = 600  # seconds that a round may take


@functools.cache
def _workplace(case, net, config):
  """What an actor creates once: the initial net, and all clients' data as tensors."""
  torch.set_num_threads(1)
  layout = torch_loop.layout_of(config)
  model = build(net, case.shape).to(memory_format=layout)
  first = {name: value.clone() for name, value in model.state_dict().items()}
  return model, first, torch_loop.tensors(*parts.examples(case), torch.device('cpu'), layout)


def train(case, net, config, client, kept=None):
  """One client update from the weights it kept, or the initial ones; returns its weights."""
  model, first, (images, labels, rows) = _workplace(case, net, config)
  model.load_state_dict(first if kept is None else kept)
  adam = torch.optim.Adam(model.parameters())
  torch_loop.client_update(model, adam, images, labels, rows[client], None, case, contextlib.nullcontext())
  return model.state_dict()


def clients(case, net, config):
  """The app that trains the client for which Flower runs it."""
  app = ClientApp()

  @app.train()
  def client_update(message, context):
    kept = context.state['model'].to_torch_state_dict() if 'model' in context.state else None
    weights = train(case, net, config, int(context.node_config['partition-id']), kept)
    context.state['model'] = ArrayRecord(torch_state_dict=weights)
    return Message(RecordDict(), reply_to=message)

  return app


def seconds_per_round(case, net, config, timed):
  """One round of `case` with `net`, timed by `timed` (a function to call -> seconds).

  Raises:
    RuntimeError: where a client fails.
  """
  server, seconds = ServerApp(), []

  @server.main()
  def rounds(grid, context):
    del context
    while len(list(grid.get_node_ids())) < case.clients:  # they start up meanwhile
      time.sleep(0.1)

    def one_round():
      orders = [Message(RecordDict(), message_type='train', dst_node_id=node) for node in grid.get_node_ids()]
      replies = list(grid.send_and_receive(orders, timeout=LIMIT))
      failed = sum(reply.has_error() for reply in replies)
      if failed or len(replies) != case.clients:
        raise RuntimeError(f'Flower: {len(replies) - failed} of {case.clients} clients trained')

    one_round()  # Ray starts, and the actors create their data, which the other systems' rounds exclude
    seconds.extend(timed(one_round))

  resources = {'client_resources': {'num_cpus': 1, 'num_gpus': 0.0}}
  run_simulation(server, clients(case, net, config), case.clients, backend_config=resources)
  return seconds
