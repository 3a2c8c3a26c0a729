"""Colours that are told from a dark page, too."""

import numpy as np
from matplotlib import colors

LIGHT, DARK = '#ffffff', '#14171c'  # the paper of the page
CONTRAST = 4.5  # at least: names at the ends of lines are text (WCAG 2.2, success criterion 1.4.3)


def luminance(colour: str) -> float:
  """Relative luminance, 0 to 1 (WCAG 2.2)."""
  rgb = np.array(colors.to_rgb(colour))
  linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
  return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
  """The contrast ratio of two colours, 1 to 21 (WCAG 2.2)."""
  low, high = sorted((luminance(one), luminance(other)))
  return (high + 0.05) / (low + 0.05)


def on_dark(colour: str) -> str:
  """The colour, mixed with as little white as it takes to be told from a dark page."""
  rgb = np.array(colors.to_rgb(colour))
  mixed = (colors.to_hex(tuple((rgb + (1 - rgb) * share).tolist())) for share in np.linspace(0, 1, 41))
  return next(one for one in mixed if contrast(one, DARK) >= CONTRAST)
