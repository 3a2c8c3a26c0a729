"""The machines of a run: several processes, how they meet, and their devices."""
