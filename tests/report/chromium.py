"""Pages in headless Chromium, which is spoken to over a pipe (Chrome DevTools Protocol)."""

import base64
import contextlib
import json
import os
import shutil
import subprocess

PROGRAM = shutil.which('chromium') or shutil.which('google-chrome')
FLAGS = ('--headless', '--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--remote-debugging-pipe')


class Page:
  """A page that is open."""

  def __init__(self, send, receive, session):
    self.send, self.receive, self.session = send, receive, session
    self.events = []  # all that the browser has said of the page

  def call(self, method, **params):
    """The result of a method; events that come before it are kept."""
    number = self.send(method, params, self.session)
    while True:
      message = self.receive()
      if message.get('id') == number:
        assert 'error' not in message, message['error']
        return message['result']
      self.events.append(message)

  def show(self, url, width, dark=False, media='screen'):
    """Loads a page at a width in CSS pixels."""
    self.call('Emulation.setDeviceMetricsOverride', width=width, height=844, deviceScaleFactor=1, mobile=width < 500)
    scheme = {'name': 'prefers-color-scheme', 'value': 'dark' if dark else 'light'}
    self.call('Emulation.setEmulatedMedia', media=media, features=[scheme])
    self.call('Page.navigate', url=url)
    while not any(event.get('method') == 'Page.loadEventFired' for event in self.events):
      self.events.append(self.receive())
    self.events = [event for event in self.events if event.get('method') != 'Page.loadEventFired']

  def evaluate(self, expression):
    """The value of JavaScript."""
    found = self.call('Runtime.evaluate', expression=expression, returnByValue=True)
    assert 'exceptionDetails' not in found, found['exceptionDetails']
    return found['result'].get('value')

  def screenshot(self, path):
    """The whole page as PNG."""
    image = self.call('Page.captureScreenshot', captureBeyondViewport=True)
    path.write_bytes(base64.b64decode(image['data']))

  def pdf(self, path):
    """As it is printed."""
    path.write_bytes(base64.b64decode(self.call('Page.printToPDF')['data']))

  def complaints(self):
    """What stands in the console, and what failed."""
    bad = ('Runtime.exceptionThrown', 'Runtime.consoleAPICalled', 'Log.entryAdded', 'Network.loadingFailed')
    return [event['params'] for event in self.events if event.get('method') in bad]

  def requests(self):
    """The URLs that were asked for."""
    sent = [event['params'] for event in self.events if event.get('method') == 'Network.requestWillBeSent']
    return [each['request']['url'] for each in sent]


@contextlib.contextmanager
def opened(profile):
  """A `Page`; `profile` is the browser's own directory."""
  (read_there, write_here), (read_here, write_there) = os.pipe(), os.pipe()

  reads_3_and_writes_4 = f'exec "$@" 3<&{read_there} 4>&{write_there}'
  words = ['bash', '-c', reads_3_and_writes_4, 'bash', PROGRAM, *FLAGS, f'--user-data-dir={profile}', 'about:blank']
  options = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL, 'pass_fds': (read_there, write_there)}
  with subprocess.Popen(words, **options) as browser:
    os.close(read_there), os.close(write_there)
    try:
      yield _attached(write_here, read_here)
    finally:
      browser.kill()
      os.close(write_here), os.close(read_here)


def _attached(write_here, read_here):
  waiting, count = bytearray(), [0]

  def send(method, params, session=None):
    count[0] += 1
    message = {'id': count[0], 'method': method, 'params': params}
    os.write(write_here, json.dumps(message | ({'sessionId': session} if session else {})).encode() + b'\0')
    return count[0]

  def receive():
    while b'\0' not in waiting:
      got = os.read(read_here, 1 << 16)
      assert got, 'Chromium has ended'
      waiting.extend(got)
    message, _, rest = bytes(waiting).partition(b'\0')
    waiting[:] = rest
    return json.loads(message)

  page = Page(send, receive, None)
  target = page.call('Target.createTarget', url='about:blank')['targetId']
  page.session = page.call('Target.attachToTarget', targetId=target, flatten=True)['sessionId']
  for domain in ('Page', 'Runtime', 'Log', 'Network'):
    page.call(f'{domain}.enable')
  return page
