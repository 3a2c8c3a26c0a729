"""Tools apart from the library: speed, crashes, fuzzing, mutations."""
