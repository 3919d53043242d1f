"""The second voice of a worker that lives inside another program: the supervisor's threads, vouching for a parent."""
