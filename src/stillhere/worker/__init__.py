"""What runs jobs: a supervisor without user code, and children with it."""
