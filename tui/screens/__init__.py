"""Screens, one a view."""
