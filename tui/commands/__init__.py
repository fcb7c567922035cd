"""The commands, one a file; each adds itself to the app."""
