"""Replay two captured token streams side by side: a GIF, its last frame as PNG, and an MP4 where ffmpeg is there."""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from PIL import Image

from scripts import core, process
from scripts.core import BuildError, Report
from scripts.video_frames import Painter
from scripts.video_palette import PALETTE, UNCHANGED
from scripts.video_plan import HUNDREDTHS, Frame, Plan
from scripts.video_stream import check_pair, read

FPS = 20
MOST_FPS = 50
"""Players show GIF frames of under two hundredths of a second as if they were ten."""

MP4 = (
    *("-c:v", "libx264", "-pix_fmt", "yuv420p", "-crf", "18", "-threads", "1", "-movflags", "+faststart"),
    *("-map_metadata", "-1", "-fflags", "+bitexact", "-flags:v", "+bitexact"),
)
"""An MP4 that browsers play, without times or names, the same bytes every time."""


def render(plan: Plan, gif: Path, png: Path) -> list[Frame]:
    """Draw every frame and write GIF and PNG; returns the frames with their times."""
    painter, frames = Painter(plan), plan.frames()
    pictures: Iterator[Image.Image] = (painter.draw(frame.view) for frame in frames)
    with core.atomic(gif) as temporary:
        next(pictures).save(
            temporary,
            format="GIF",
            save_all=True,
            append_images=pictures,
            duration=[frame.length * 1000 // HUNDREDTHS for frame in frames],
            loop=0,
            palette=PALETTE,
            transparency=UNCHANGED,
            optimize=True,  # write what changed, and nothing else
        )
    with core.atomic(png) as temporary:
        painter.draw(frames[-1].view).save(temporary, format="PNG", optimize=True)
    return frames


def find_ffmpeg() -> str | None:
    """The ffmpeg on PATH, or the one that the package imageio_ffmpeg brings along; None where there is neither."""
    if found := shutil.which("ffmpeg"):
        return found
    try:
        return str(importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe())
    except (ImportError, RuntimeError):  # not installed; installed without a program
        return None


def to_mp4(ffmpeg: str, gif: Path, mp4: Path, fps: int) -> None:
    """Make the MP4 of a GIF; a time off the grid of ``fps`` moves to the next frame, never to the one before.

    Raises:
        BuildError: ffmpeg fails.
    """
    with core.atomic(mp4) as temporary:
        command = [ffmpeg, "-hide_banner", "-loglevel", "warning", "-y", "-i", str(gif), "-vf", f"fps={fps}:round=up"]
        code, tail = process.stream([*command, *MP4, "-f", "mp4", str(temporary)], lambda line: None)
        if code:
            raise process.failed("ffmpeg", code, tail, gif, "use an ffmpeg with libx264", wrote=temporary)


def report_on(plan: Plan, frames: Sequence[Frame], gif: Path, mp4: Path | None) -> Report:
    """Figures of what was made."""
    left, right = plan.baseline.timings, plan.dflash.timings
    report = Report()
    whole = frames[-1].view
    shown = [whole.left.tokens, whole.right.tokens]
    captured = [len(plan.baseline.tokens), len(plan.dflash.tokens)]
    report.check("every token is shown", shown == captured, f"shown {shown}, captured {captured}")
    report.figures = {
        "frames": len(frames),
        "seconds": sum(frame.length for frame in frames) / HUNDREDTHS,
        "fps": plan.fps,
        "speed": plan.speed,
        "gif_bytes": gif.stat().st_size,
        "mp4": mp4.name if mp4 else None,
        "identical": plan.difference is None,
        "first_difference": plan.difference,
        "baseline_per_second": left.per_second,
        "dflash_per_second": right.per_second,
        "acceptance": right.acceptance,
        "tokens_per_pass": right.predicted_n / right.passes,
    }
    return report


def make(baseline: Path, dflash: Path, gif: Path, png: Path, fps: int, speed: float) -> Report:
    """Render two captured streams; the MP4 lies beside the GIF.

    Args:
        baseline: stream without a draft.
        dflash: stream with it.
        gif: where the GIF goes.
        png: where its last frame goes.
        fps: frames per second, 1 to 50.
        speed: captured seconds per second of playback; other than 1 it stands in the picture.

    Raises:
        BuildError: a stream is damaged, they do not belong together, or ffmpeg fails.
    """
    if not 1 <= fps <= MOST_FPS:
        raise BuildError(f"{fps} frames per second", "--fps", f"give 1 to {MOST_FPS}")
    if not speed > 0:
        raise BuildError(f"speed {speed:g}", "--speed", "give a number above 0")
    left, right = read(baseline), read(dflash)
    check_pair(left, right, dflash)
    plan = Plan(left, right, fps, speed)
    frames = render(plan, gif, png)
    mp4 = gif.with_suffix(".mp4")
    mp4.unlink(missing_ok=True)  # of an earlier run: never beside a GIF of other streams
    ffmpeg = find_ffmpeg()
    if ffmpeg:
        to_mp4(ffmpeg, gif, mp4, fps)
    else:
        core.say("no MP4: ffmpeg is not on PATH, and the package imageio_ffmpeg is not installed")
    return report_on(plan, frames, gif, mp4 if ffmpeg else None)


def main(argv: list[str] | None = None) -> int:
    """Command-line front."""
    arguments = core.parser(__doc__)
    arguments.add_argument("--baseline", type=Path, required=True, help="captured stream without the draft")
    arguments.add_argument("--dflash", type=Path, required=True, help="captured stream with the draft")
    arguments.add_argument("--gif", type=Path, required=True, help="write the GIF here, and the MP4 beside it")
    arguments.add_argument("--png", type=Path, required=True, help="write the last frame here")
    arguments.add_argument("--report", type=Path, required=True, help="write the report here")
    arguments.add_argument("--fps", type=int, default=FPS, help="frames per second (%(default)s)")
    arguments.add_argument("--speed", type=float, default=1.0, help="playback speed; 0.5 is half speed (%(default)s)")

    def step(options: argparse.Namespace) -> None:
        report = make(options.baseline, options.dflash, options.gif, options.png, options.fps, options.speed)
        report.settle(options.gif, "report this as a bug")
        report.write(options.report)
        core.say(f"{options.gif}: {report.figures['seconds']:g} s, {core.human(report.figures['gif_bytes'])}")

    return core.run(arguments, step, argv)


if __name__ == "__main__":
    sys.exit(main())
