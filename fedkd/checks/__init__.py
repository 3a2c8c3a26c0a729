"""What is looked at before it is used: arguments of the door, functions of others, files that nobody vouches for."""
