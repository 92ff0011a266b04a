"""What is told of a run while it goes on."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import numpy as np
import pytest

from fedgwc.cli import replay as replay_module
from fedgwc.cli.replay import replay_command
from fedgwc.runs import delayed_progress as delay
from fedgwc.runs import progress
from fedgwc.runs.delayed_progress import DelayedWatcher, map_with_progress
from fedgwc.runs.progress import Facts, Lines, Live, Pace, fitting, short, speed_text, time_text


class Clock:
    """Every look at it takes as long as is said."""

    def __init__(self, step: float) -> None:
        self.now, self.step = 0.0, step

    def monotonic(self) -> float:
        self.now += self.step
        return self.now


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "time", Clock(10.0))


def test_what_is_not_known_is_not_made_up(slow: None, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.start("fedgwc on digits", 100, 0)
    lines.round(1, 2.5, 1)
    assert capsys.readouterr().err == "fedgwc on digits: round 1/100  loss 2.500  clusters 1\n"


def test_the_last_line_has_the_last_evaluation(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    lines.start("fedgwc on digits", 2, 0)
    lines.round(1, 2.5, 1)
    lines.evaluated({"accuracy": 0.948})
    lines.round(2, 2.0, 2)
    assert capsys.readouterr().err == ""
    lines.evaluated({"accuracy": 0.944})
    lines.stop()
    lines.stop()
    assert capsys.readouterr().err == "fedgwc on digits: round 2/2  accuracy 94.4%  loss 2.000  clusters 2\n"


def test_time_left_is_told_after_a_few_rounds_and_without_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(0.0)
    monkeypatch.setattr(progress, "time", clock)
    pace = Pace(100)
    clock.now = 1000.0  # it took long to get ready
    for number in range(11, 15):
        assert pace.left is None
        pace.round(number)
        clock.now += 2.0
    assert pace.speed == 0.5
    assert pace.left == 2.0 * (100 - 14)
    assert Facts(14, 1.0, 2, 0.5).words(pace) == ["accuracy 50.0%", "loss 1.000", "clusters 2", "2.0 s/round"]


def test_numbers_are_short() -> None:
    assert [short(x) for x in (0.12345, 999.0, 1e30, float("nan"), float("inf"))] == ["0.123", "999.000", "1.0e+30", "–", "inf"]
    assert [speed_text(x) for x in (250.4, 1.0, 0.1)] == ["250 rounds/s", "1 rounds/s", "10.0 s/round"]
    assert [time_text(x) for x in (3.2, 99.4, 100, 15_239)] == ["3 s", "99 s", "0:01:40", "4:13:59"]


def test_words_that_do_not_fit_are_left_out_from_the_end() -> None:
    assert fitting(["abc", "de"], 7) == "abc  de"
    assert fitting(["abc", "de"], 6) == "abc"
    assert fitting(["abc", "de"], 2) == ""


@pytest.mark.parametrize("width", [120, 60, 40])
def test_a_narrow_terminal_keeps_the_round_and_the_time(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    for name, value in {"COLUMNS": str(width), "TERM": "xterm", "NO_COLOR": "1"}.items():
        monkeypatch.setenv(name, value)
    live = Live()
    live.start("fedgwc on digits", 1000, 0)
    live.round(1000, 1e30, 12)
    live.evaluated({"accuracy": 0.944})
    live.stop()
    last = screen.getvalue().rstrip("\n").splitlines()[-1]
    assert len(last) <= width
    assert "1000/1000" in last
    assert ":" in last.split("1000/1000")[1].split()[0]  # --:-- or 00:00
    assert ("accuracy 94.4%" in last) == (width >= 60)


class Seen(progress.Silent):
    """Who is told of what."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def start(self, title: str, n_rounds: int, done: int, folder: Path | None = None) -> None:
        self.told.append(("start", title, n_rounds, done))

    def round(self, number: int, loss: float, n_clusters: int) -> None:
        self.told.append(("round", number))

    def step(self, number: int) -> None:
        self.told.append(("step", number))

    def stop(self) -> None:
        self.told.append(("stop",))


def test_what_is_over_soon_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the clock takes a second: at a start, and before everything that is told. Patience ends at the third."""
    monkeypatch.setattr(delay, "time", Clock(1.0))
    seen = Seen()
    delayed = DelayedWatcher(seen, delay=3.0)
    delayed.start("runs read", 1, 0)
    delayed.step(1)
    delayed.stop()
    assert seen.told == []
    delayed.start("replay", 9, 0)
    assert seen.told == [("start", "replay", 9, 0)]
    delayed.round(1, 0.5, 1)
    delayed.stop()
    assert seen.told[1:] == [("round", 1), ("stop",)]


def test_what_takes_long_is_shown_from_where_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delay, "time", Clock(1.0))
    seen = Seen()
    assert map_with_progress(str, [1, 2, 3], "figures", DelayedWatcher(seen, delay=3.0)) == ["1", "2", "3"]
    assert seen.told == [("start", "figures", 3, 2), ("step", 2), ("step", 3), ("stop",)]


def test_a_mistake_in_between_ends_the_display() -> None:
    seen = Seen()
    with pytest.raises(ValueError, match="invalid literal"):
        map_with_progress(int, ["1", "x"], "runs read", seen)
    assert seen.told == [("start", "runs read", 2, 0), ("step", 1), ("stop",)]


def test_steps_are_not_called_rounds(slow: None, capsys: pytest.CaptureFixture[str]) -> None:
    map_with_progress(str, range(2), "figures drawn", Lines())
    assert capsys.readouterr().err == "figures drawn: 1/2\nfigures drawn: 2/2\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    """Five rounds of three clients."""
    losses = np.linspace(0, 1, 30).reshape(5, 3, 2)
    np.savez(tmp_path / "trace.npz", ids=np.tile(np.arange(3), (5, 1)), L=losses)
    return tmp_path / "trace.npz"


def test_a_short_replay_says_nothing_but_its_result(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    replay_command(trace, [], [], None, None)
    assert capsys.readouterr().err == ""


def test_a_long_replay_tells_how_far_all_its_settings_are(
    trace: Path, slow: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(replay_module, "DelayedWatcher", lambda other: DelayedWatcher(other, delay=0.0))
    replay_command(trace, [], ["algorithm.gain=2,4"], None, None)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "replay: round 1/10  loss 0.086  clusters 1"  # the mean of 0/29 to 5/29
    assert lines[-1].startswith("replay: round 10/10  loss 0.914  clusters 1")
