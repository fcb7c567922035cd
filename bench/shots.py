"""Draw every view of the demo as text and SVG, small and large. usage: shots.py [FOLDER] [--trace PATH]."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path

from kinetop.traces.synthetic import write_demo
from kinetop.tui.app import KinetopApp

SIZES = {"80x24": (80, 24), "140x40": (140, 40)}
VIEWS = "123456789"


def text_of(app: KinetopApp) -> str:
    """Return the screen's lines as text."""
    strips = app.screen._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips) + "\n"


async def draw(paths: list[Path], size: tuple[int, int], out: Path, name: str) -> None:
    """Open the app, go through its views, and write each down once."""
    app = KinetopApp(paths)
    seen: set[str] = set()
    async with app.run_test(size=size) as pilot:
        await app.workers.wait_for_complete()
        for view in VIEWS:
            await pilot.press(view)
            await app.workers.wait_for_complete()
            await pilot.pause()
            text = text_of(app)
            if text in seen:
                continue
            seen.add(text)
            (out / f"{view}-{name}.txt").write_text(text)
            (out / f"{view}-{name}.svg").write_text(app.export_screenshot())


def main() -> None:
    """Draw all views at all sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, nargs="?", default=Path("shots"))
    parser.add_argument("--trace", type=Path, help="another trace than the demo")
    args = parser.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as demo:
        paths = [args.trace] if args.trace else write_demo(demo)
        for name, size in SIZES.items():
            asyncio.run(draw(paths, size, args.folder, name))
    print(*sorted(path.name for path in args.folder.iterdir()), sep="\n")


if __name__ == "__main__":
    main()
