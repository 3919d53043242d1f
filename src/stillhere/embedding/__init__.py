"""A worker inside another program: a web server, a script, a notebook, a test."""
