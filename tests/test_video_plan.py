"""What the frames of the demo video show, and when: no token before its time, no time that drifts."""

import itertools

import pytest

from scripts.video_plan import HOLD, Plan, Track, pass_starts
from tests.video_samples import WORDS, baseline, dflash, other, stream


@pytest.mark.parametrize("fps", [7, 20, 30, 50])
@pytest.mark.parametrize("speed", [0.3, 1.0, 2.0])
def test_a_frame_shows_exactly_what_had_come_by_its_time(fps: int, speed: float) -> None:
    plan = Plan(baseline(), dflash(), fps, speed)
    for frame in plan.frames():
        now = frame.start / 100 * speed
        for side, made in ((frame.view.left, plan.baseline), (frame.view.right, plan.dflash)):
            assert [piece.at for piece in made.pieces if piece.at <= now] == [p.at for p in made.pieces[: side.pieces]]
            assert side.tokens == side.pieces


@pytest.mark.parametrize("fps", [7, 20, 30, 50])
def test_frames_follow_each_other_on_the_grid_without_drift(fps: int) -> None:
    frames = Plan(baseline(), dflash(), fps, 0.1).frames()
    at = 0
    for frame in frames:
        assert frame.start == at
        assert abs(at / 100 - round(at * fps / 100) / fps) <= 0.005 + 1e-9  # the nearest hundredth, however far in
        at += frame.length
    assert frames[-1].length == HOLD
    assert len(frames) > 50


def test_equal_views_are_one_frame() -> None:
    frames = Plan(baseline(), dflash(), 50, 0.1).frames()
    assert all(one.view != other.view for one, other in itertools.pairwise(frames))
    assert max(frame.length for frame in frames[:-1]) > 2  # a hundredth of captured time takes several frames here


def test_both_answers_are_whole_at_the_end() -> None:
    last = Plan(baseline(), dflash(), 20, 1.0).frames()[-1].view
    assert last.ended
    assert (last.left.tokens, last.right.tokens) == (16, 16)
    assert last.clock == 1.16  # 113 ms + 15 * 70 ms: the captured time of the last token, rounded down


def test_the_side_that_ended_keeps_its_time_and_the_servers_figures() -> None:
    plan = Plan(baseline(), dflash(), 20, 1.0)
    early, late = plan.view(0.7), plan.view(1.1)
    assert early.right == late.right
    assert late.right.ended and not late.left.ended
    assert late.right.seconds == 0.61
    assert late.right.per_second == round(plan.dflash.timings.per_second or 0, 1)
    assert late.right.acceptance == 0.5
    assert late.right.newest == late.right.pieces


def test_acceptance_is_not_known_before_the_end() -> None:
    assert Plan(baseline(), dflash(), 20, 1.0).view(0.5).right.acceptance is None


def test_tokens_per_second_are_tokens_so_far_over_the_time_since_the_first() -> None:
    plan = Plan(baseline(), dflash(), 20, 1.0)
    assert plan.view(0.113).left.per_second is None
    assert plan.view(0.613).left.per_second == 16  # eight tokens in half a second
    nothing = plan.view(0.05).left
    assert (nothing.pieces, nothing.per_second, nothing.per_pass, nothing.newest) == (0, None, None, 0)


def test_passes_are_found_by_the_pauses_between_them() -> None:
    assert pass_starts([piece.at for piece in dflash().pieces], dflash().timings.passes) == [0, 1, 6, 11]
    assert pass_starts([piece.at for piece in baseline().pieces], baseline().timings.passes) == list(range(16))


def test_the_newest_pass_is_marked_and_counted() -> None:
    right = Track(dflash()).at(0.5)
    assert (right.newest, right.pieces) == (6, 11)
    assert right.per_pass == round(11 / 3, 1)


def test_a_token_may_come_with_the_bytes_of_the_one_before() -> None:
    made = stream([0.1, 0.2, 0.3])
    assert pass_starts([piece.at for piece in made.pieces], 5) == [0, 1, 2]


def test_answers_that_differ_are_said_to_once_both_have_shown_it() -> None:
    plan = Plan(baseline(), other(), 20, 1.0)
    assert plan.difference == 7
    assert plan.view(0.5).differs_at is None  # DFlash is past it, the baseline is not
    assert plan.view(0.62).differs_at == 7


def test_an_answer_that_ends_earlier_differs_at_its_end() -> None:
    plan = Plan(stream([0.1, 0.2, 0.3]), stream([0.1, 0.2], "Draft.gguf", 1), 20, 1.0)
    assert plan.difference == 2
    assert plan.frames()[-1].view.differs_at == 2
    assert plan.view(0.25).differs_at is None


def test_the_same_answers_do_not_differ() -> None:
    plan = Plan(baseline(), dflash(), 20, 1.0)
    assert {frame.view.differs_at for frame in plan.frames()} == {None}
    assert plan.baseline.text == "".join(WORDS)
