import pytest

from launch.tools.speed import scale


@pytest.mark.slow
def test_a_row_is_measured_on_a_real_run_and_drawn(tmp_path, monkeypatch):
  monkeypatch.setattr(scale, 'PARTICIPANTS', 2)
  monkeypatch.setattr(scale, 'STRETCH', 1)
  row = {
    'axis': 'clients',
    'method': 'fedhe',
    'clients': 6,
    'store': 'disk',
    'devices': 1,
    'rounds': 3,
  }
  found = scale.measure(row)
  assert 0 < found['seconds_per_round'] < found['seconds_per_round_with_saving']
  # Records of 61 706 weights with two moments and a count of steps; six clients at most, on disk in whole blocks.
  assert 2 * 740_476 <= found['disk_mb'] * 1e6 <= 6 * 745_000
  spread = {**found, 'axis': 'devices'}
  scale.draw([found, spread, {**row, 'note': 'not measured'}], tmp_path / 'scale.png')
  assert (tmp_path / 'scale.png').stat().st_size > 10_000
