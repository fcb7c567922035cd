"""Colours: one calm theme of our own, and the colours of the classes in every theme."""

from __future__ import annotations

import os

from textual.theme import BUILTIN_THEMES, Theme

_DARK = {"compute": "#5fa8d3", "comm": "#e0a458", "memory": "#a88fd0", "idle": "#6c7480", "muted": "#8b93a1"}
_LIGHT = {"compute": "#1f6f9f", "comm": "#b06a00", "memory": "#6f4fa8", "idle": "#8a9099", "muted": "#6b727c"}
_ANSI = {
    "compute": "ansi_blue",
    "comm": "ansi_yellow",
    "memory": "ansi_magenta",
    "idle": "ansi_bright_black",
    "muted": "ansi_default",
}

THEMES = (
    Theme(
        name="kinetop",
        primary="#5fa8d3",
        secondary="#7d8590",
        accent="#4fb8a8",
        warning="#e0a458",
        error="#e06c75",
        success="#7fb069",
        foreground="#d3d7de",
        background="#14171c",
        surface="#1b1f26",
        panel="#222832",
        dark=True,
    ),
    Theme(
        name="kinetop-light",
        primary="#1f6f9f",
        secondary="#5b6470",
        accent="#0f7f70",
        warning="#a86400",
        error="#b3261e",
        success="#3f7d20",
        foreground="#22262c",
        background="#fbfbf9",
        surface="#f1f1ee",
        panel="#e6e6e1",
        dark=False,
    ),
    Theme(
        name="kinetop-16",
        primary="ansi_blue",
        secondary="ansi_cyan",
        accent="ansi_cyan",
        warning="ansi_yellow",
        error="ansi_red",
        success="ansi_green",
        foreground="ansi_default",
        background="ansi_default",
        surface="ansi_default",
        panel="ansi_default",
        boost="ansi_default",
        ansi=True,
        variables=BUILTIN_THEMES["ansi-dark"].variables,
    ),
)


def class_colours(theme: Theme) -> dict[str, str]:
    """Return the colours of compute, exposed communication, copies, idle and of side texts: the same in every view of a theme."""
    return _ANSI if theme.ansi else _DARK if theme.dark else _LIGHT


def colourless() -> bool:
    """Return whether the user wants no colours (NO_COLOR); bold and reverse then carry what colours did."""
    return "NO_COLOR" in os.environ


def default_theme() -> str:
    """Return the theme for this terminal: with 16 colours, or none, the terminal's own palette, else `kinetop`."""
    if colourless():
        return "kinetop-16"
    term = os.environ.get("TERM", "")
    rich_colours = os.environ.get("COLORTERM", "") in {"truecolor", "24bit"} or "256" in term or "kitty" in term or not term
    return "kinetop" if rich_colours else "kinetop-16"
