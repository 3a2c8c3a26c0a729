"""Hosts meet at the first one's address before JAX uses it: two with the same number would end all the others.

A host sends one line, `fedkd COUNT INDEX`. The answer is one line, too: `go` as soon as all are there, or why not.
"""

import socket
import time

SECONDS = 300  # that hosts wait for each other, as JAX does
GREETING = 10  # seconds for somebody who connects to say who he is
AGAIN = 0.2  # seconds until the first host is tried once more
LONGEST = 300  # bytes of a line


def wait_for_others(place, many):
  """Waits, on the first host, until all others are there.

  Args:
    place: (family, kind, protocol, socket address) to listen at.
    many: hosts, with this one.

  Raises:
    OSError: if it cannot listen there.
    ValueError: if they are not all there in time.
  """
  family, kind, protocol, address = place
  until, there = time.monotonic() + SECONDS, {}
  try:
    with socket.socket(family, kind, protocol) as listening:
      listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
      listening.bind(address)
      listening.listen(many)
      while len(there) < many - 1:
        accept(listening, many, there, until)
        if len(there) == many - 1:
          there = {index: host for index, host in there.items() if not _is_closed(host)}
    for host in there.values():
      send_line(host, 'go')
  finally:
    for host in there.values():
      host.close()


def accept(listening, many, there, until):
  """Takes one connection, into `there` if it is that of a host which was lacking."""
  listening.settimeout(max(0.0, until - time.monotonic()) or 1e-3)
  try:
    host, _ = listening.accept()
  except TimeoutError:
    lacking = ', '.join(str(index) for index in range(1, many) if index not in there)
    raise ValueError(f'host {lacking} of {many} did not arrive within {SECONDS} seconds') from None
  try:
    word, count, index = read_line(host, time.monotonic() + GREETING).split()
    if word != 'fedkd':
      raise ValueError(word)
    index = int(index)
    reason = '' if int(count) == many else f'host 0 waits for {many} hosts'
    if index in there and not _is_closed(there[index]):
      reason = f'host {index} has come already, from {there[index].getpeername()[0]}'
  except (ValueError, OSError):  # no host
    host.close()
    return
  if reason:
    send_line(host, reason)
    host.close()
  else:
    there[index] = host


def _is_closed(host) -> bool:
  """Whether a host has closed its connection; one that waits sends nothing."""
  host.setblocking(False)
  try:
    return not host.recv(1, socket.MSG_PEEK)
  except BlockingIOError:
    return False
  except OSError:
    return True


def connect(place, many, index):
  """Waits, on any other host, until all are there.

  Raises:
    ValueError: if this one is refused, or the first one is not there in time.
  """
  family, kind, protocol, address = place
  until = time.monotonic() + SECONDS
  while True:
    with socket.socket(family, kind, protocol) as first:
      first.settimeout(max(1.0, until - time.monotonic()))
      try:
        first.connect(address)
        send_line(first, f'fedkd {many} {index}')
        answer = read_line(first, until)
      except OSError as error:
        if time.monotonic() > until:
          raise ValueError(f'host 0 does not answer ({error.strerror or error})') from error
        answer = None
    if answer == 'go':
      return
    if answer is not None:
      raise ValueError(answer if answer.startswith('host ') else 'the other hosts began without this one')
    time.sleep(AGAIN)


def send_line(host, line):
  """Sends a line; a host that has gone does not read it."""
  host.settimeout(GREETING)
  try:
    host.sendall(f'{line}\n'.encode())
  except OSError:  # the connection is closed: JAX reports it, or the other end does
    return


def read_line(host, until) -> str:
  """A line, or what came of it before the end."""
  text = b''
  while not text.endswith(b'\n') and len(text) < LONGEST:
    host.settimeout(max(1e-3, until - time.monotonic()))
    if not (more := host.recv(LONGEST)):
      break
    text += more
  return text.decode(errors='replace').strip()
