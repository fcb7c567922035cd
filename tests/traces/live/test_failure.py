"""What an error says: users' code may raise anything."""

from __future__ import annotations

from kinetop.traces.live.worker import failure


class SilentError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_an_error_whose_text_cannot_be_had_is_said_all_the_same() -> None:
    assert failure.sentence(SilentError()) == "SilentError: its message cannot be had: RuntimeError"
    assert "SilentError" in failure.detail(SilentError(), 3)


def test_an_absurdly_long_text_is_cut() -> None:
    error = ValueError("x" * 10_000_000)
    told = [failure.message(error), failure.sentence(error), failure.detail(error, 3)]
    assert max(map(len, told)) < failure.MAX_CHARACTERS + 20


def test_a_sentence_is_one_line() -> None:
    assert failure.sentence(ValueError("one\ntwo")) == "ValueError: one"
