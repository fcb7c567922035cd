"""Widgets that know no analysis."""
