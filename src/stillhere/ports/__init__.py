"""The doors between the queue and its stores: verbs, replies and guarantees. Knows the domain, no store, no worker."""
