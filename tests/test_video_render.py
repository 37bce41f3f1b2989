"""The demo video as files: the pictures that were planned, for as long as planned, the same bytes every time."""

import itertools
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image, ImageChops, ImageSequence

from scripts import process, video
from scripts.core import BuildError
from scripts.llama_server import Piece
from scripts.video_frames import HEIGHT, WIDTH, Painter, verdict
from scripts.video_palette import COLOURS, INKS, PALETTE, PAPERS, UNCHANGED, ink, paper
from scripts.video_plan import HOLD, Plan
from tests.errors_table import Said
from tests.video_samples import baseline, dflash, other, written

FPS = 10


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with GIF, PNG and report of two streams."""
    folder = tmp_path_factory.mktemp("video")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(video, "find_ffmpeg", lambda: None)
        _make(folder)
    yield folder


def _make(folder: Path, fps: int = FPS, speed: float = 1.0) -> None:
    left, right = written(folder, baseline(), dflash())
    arguments = ["--baseline", left, "--dflash", right, "--gif", folder / "demo.gif", "--png", folder / "demo.png"]
    options = ["--report", folder / "video.json", "--fps", fps, "--speed", speed]
    assert video.main([str(part) for part in [*arguments, *options]]) == 0


def test_the_gif_shows_every_planned_frame_for_its_time(made: Path) -> None:
    plan = Plan(baseline(), dflash(), FPS, 1.0)
    painter, frames = Painter(plan), plan.frames()
    with Image.open(made / "demo.gif") as gif:
        assert gif.size == (WIDTH, HEIGHT)
        assert gif.info["loop"] == 0
        for shown, frame in itertools.zip_longest(ImageSequence.Iterator(gif), frames):
            assert shown.info["duration"] == frame.length * 10
            drawn = painter.draw(frame.view).convert("RGB")
            assert ImageChops.difference(shown.convert("RGB"), drawn).getbbox() is None


def test_the_durations_add_up_to_the_captured_time_and_the_hold(made: Path) -> None:
    with Image.open(made / "demo.gif") as gif:
        total = sum(shown.info["duration"] for shown in ImageSequence.Iterator(gif))
    assert total == 1200 + 10 * HOLD  # the last token comes at 1.163 s; the frame after it is that of 1.2 s


def test_the_picture_is_the_last_frame(made: Path) -> None:
    with Image.open(made / "demo.gif") as gif, Image.open(made / "demo.png") as picture:
        last = ImageSequence.all_frames(gif)[-1]
        assert ImageChops.difference(last.convert("RGB"), picture.convert("RGB")).getbbox() is None
        assert {"Software", "Creation Time", "date:create"}.isdisjoint(picture.info)


def test_the_same_streams_give_the_same_bytes(made: Path, tmp_path: Path) -> None:
    _make(tmp_path)
    for name in ("demo.gif", "demo.png"):
        assert (tmp_path / name).read_bytes() == (made / name).read_bytes()


def test_the_gif_carries_no_comment_and_one_palette(made: Path) -> None:
    data = (made / "demo.gif").read_bytes()
    assert data.startswith(b"GIF89a")
    assert data[13 : 13 + len(PALETTE)] == PALETTE
    assert data.count(PALETTE[:96]) == 1
    with Image.open(made / "demo.gif") as gif:
        assert "comment" not in gif.info


def test_the_report_has_the_figures(made: Path) -> None:
    report = json.loads((made / "video.json").read_text())
    assert report["ok"]
    assert (report["identical"], report["acceptance"], report["tokens_per_pass"]) == (True, 0.5, 4.0)
    assert (report["seconds"], report["speed"], report["mp4"]) == (4.2, 1.0, None)
    assert report["gif_bytes"] == (made / "demo.gif").stat().st_size


def test_every_colour_has_its_own_place_in_the_palette() -> None:
    assert len(set(COLOURS)) == len(PALETTE) // 3 == UNCHANGED < 256
    assert {paper(name) for name in PAPERS} <= set(range(UNCHANGED))
    assert len({ink(name, "pane") for name in ("text", "faint", "keyword", "string")}) == 4
    assert len(INKS) == len(set(INKS.values())) + 1  # a keyword and a warning share theirs


def _changes(one: Plan, other_plan: Plan, now: float) -> tuple[int, int, int, int] | None:
    pictures = [Painter(plan).draw(plan.view(now)).convert("RGB") for plan in (one, other_plan)]
    return ImageChops.difference(*pictures).getbbox()


def test_another_speed_stands_in_the_picture() -> None:
    box = _changes(Plan(baseline(), dflash(), 20, 1.0), Plan(baseline(), dflash(), 20, 0.5), 0.4)
    assert box is not None
    assert box[3] < 48  # in the strip above the panes, and nowhere else


def test_a_token_is_drawn_in_the_frame_of_its_time_and_in_none_before() -> None:
    whole = Plan(baseline(), dflash(), 20, 1.0)
    pieces = [replace(piece, text="") if number == 9 else piece for number, piece in enumerate(baseline().pieces)]
    without = Plan(replace(baseline(), pieces=tuple(pieces)), dflash(), 20, 1.0)
    at = baseline().pieces[9].at
    assert _changes(whole, without, at - 0.001) is None
    assert _changes(whole, without, at) is not None


def test_a_long_answer_scrolls_to_its_end() -> None:
    long = replace(baseline(), pieces=tuple(Piece(0.1 + n / 100, f"line {n}\n", [n]) for n in range(60)))
    plan = Plan(long, dflash(), 20, 1.0)
    early, late = (Painter(plan).draw(plan.view(at)).convert("RGB") for at in (0.25, 9.0))
    assert ImageChops.difference(early, late).crop((30, 110, 400, 460)).getbbox() is not None
    last = replace(long, pieces=(*long.pieces[:-1], replace(long.pieces[-1], text="line !\n")))
    box = _changes(plan, Plan(last, dflash(), 20, 1.0), 9.0)
    assert box is not None
    assert box[1] > 400  # the last line stands at the bottom of the pane


def test_what_is_said_of_both_answers_at_the_end() -> None:
    same, different = Plan(baseline(), dflash(), 20, 1.0), Plan(baseline(), other(), 20, 1.0)
    assert verdict(same, same.view(0.7)) == []
    assert [said for said, _ in verdict(same, same.view(2.0))] == ["DFlash: 2.15x baseline tok/s", "same output"]
    assert ("outputs differ from token 8 on", "warning") in verdict(different, different.view(2.0))
    assert "same output" not in str(verdict(different, different.view(2.0)))


def test_the_first_different_token_is_marked_in_both_panes() -> None:
    plan = Plan(baseline(), other(), 20, 1.0)
    before, after = (Painter(plan).draw(plan.view(at)) for at in (0.5, 2.0))
    marked = paper("differs")
    assert before.histogram()[marked] == 0
    panes = [after.crop((0, 0, WIDTH // 2, HEIGHT)), after.crop((WIDTH // 2, 0, WIDTH, HEIGHT))]
    assert all(pane.histogram()[marked] > 20 for pane in panes)


@pytest.mark.parametrize(("fps", "speed", "title"), [(60, 1.0, "frames"), (0, 1.0, "no frames"), (20, 0.0, "speed")])
def test_options_that_no_player_can_show(tmp_path: Path, fps: int, speed: float, title: str, said: Said) -> None:
    with pytest.raises(BuildError) as caught:
        video.make(tmp_path / "a", tmp_path / "b", tmp_path / "demo.gif", tmp_path / "demo.png", fps, speed)
    titles = {"frames": "too many frames per second", "no frames": "no frames per second", "speed": "no speed"}
    said(f"Demo video: {titles[title]}", caught.value)


def test_nothing_is_left_of_a_damaged_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left, right = written(tmp_path, baseline(), dflash())
    right.write_text(right.read_text()[:-20])
    out = ["--gif", f"{tmp_path}/demo.gif", "--png", f"{tmp_path}/demo.png", "--report", f"{tmp_path}/video.json"]
    assert video.main(["--baseline", str(left), "--dflash", str(right), *out]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("error: line 17: not JSON")
    assert {path.name for path in tmp_path.iterdir()} == {"baseline.jsonl", "dflash.jsonl"}


def test_without_ffmpeg_there_is_no_mp4_and_an_old_one_goes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(video, "find_ffmpeg", lambda: None)
    (tmp_path / "demo.mp4").write_bytes(b"of other streams")
    _make(tmp_path, fps=2)
    assert not (tmp_path / "demo.mp4").exists()


def test_an_ffmpeg_that_fails(made: Path, tmp_path: Path, said: Said) -> None:
    program = tmp_path / "ffmpeg"
    program.write_text("#!/bin/sh\necho 'Unknown encoder libx264'\necho 'Error opening output files' >&2\nexit 8\n")
    program.chmod(0o755)
    with pytest.raises(BuildError) as caught:
        video.to_mp4(str(program), made / "demo.gif", tmp_path / "demo.mp4", FPS)
    said("Demo video: an ffmpeg that fails", caught.value)
    assert not (tmp_path / "demo.mp4").exists()


@pytest.mark.slow
def test_the_mp4_is_as_long_as_the_gif_and_the_same_every_time(made: Path, tmp_path: Path) -> None:
    ffmpeg = video.find_ffmpeg()
    assert ffmpeg, "the pins have imageio-ffmpeg"
    paths = tmp_path / "one.mp4", tmp_path / "two.mp4"
    for path in paths:
        video.to_mp4(ffmpeg, made / "demo.gif", path, FPS)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    _, lines = process.stream([ffmpeg, "-hide_banner", "-i", str(paths[0])], lambda line: None)
    (length,) = re.findall(r"Duration: (\S+),", "\n".join(lines))
    assert length == "00:00:04.20"
    assert "creation_time" not in "\n".join(lines)
