"""What tests share: where the real traces lie, and a cache folder of their own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HAZARDS = ROOT / "tests" / "data" / "hazards"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """No test reads or fills the user's cache."""
    monkeypatch.setenv("KINETOP_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def hazards() -> Path:
    """Folder of the small broken traces."""
    return HAZARDS


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder with `traces/` and `reference/`; tests that need it skip where it is absent."""
    folder = Path(os.environ.get("KINETOP_SHARED", ROOT.parent / "shared"))
    if not (folder / "traces").is_dir():
        pytest.skip("the real traces are not here: set KINETOP_SHARED to the folder that holds traces/ and reference/")
    return folder
