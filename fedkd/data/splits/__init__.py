"""Which client owns which rows, and what for: partitions, the papers' label skews, personal test rows, uses."""
