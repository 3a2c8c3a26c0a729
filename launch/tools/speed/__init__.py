"""Speed and memory, measured through the library's own code."""
