"""The pure floor: rules and values, with no I/O, no clock of its own and no randomness of its own."""
