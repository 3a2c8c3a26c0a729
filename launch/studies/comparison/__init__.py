"""The benchmark of all methods: settings, the budget that each method has in them, runs, and the page made of them."""
