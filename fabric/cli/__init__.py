"""The command line: one verb per file; `main` returns the exit code."""

from fabric.cli._app import app as app, main as main
