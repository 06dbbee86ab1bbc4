"""The figures of time and speed in the logs of a training, in the forms of the libraries that write them."""

from __future__ import annotations

import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.jobs.experiments.log_figures import Figures, read_figures, read_metric
from table_tests import each_row

BAR = " 50%|█████     | {}/{} [{}<00:10, {}, loss=2.1]"


@each_row(
    ("log", "runtime", "steps"),
    [
        # transformers 4.6 and before: steps per second under another name.
        ("{'train_runtime': 101.9003, 'train_samples_per_second': 1.963, 'epoch': 0.41}", 101.9003, 1.963),
        (
            "{'train_runtime': 50.0, 'train_samples_per_second': 32.0, 'train_steps_per_second': 4.0}",
            50.0,
            4.0,
        ),
        # transformers 5 logs strings.
        ("{'train_runtime': '12.5', 'train_steps_per_second': '8.1', 'epoch': '1'}", 12.5, 8.1),
        ("  train_runtime            = 0:01:41.90\n  train_steps_per_second   =      1.963", 101.9, 1.963),
        ("  train_runtime            = 1 day, 0:00:10.50", 86410.5, None),
        ('{"train_runtime": 7, "train_steps_per_second": 2e1}', 7.0, 20.0),
        (BAR.format(100, 200, "00:50", "2.00it/s"), None, 2.0),
        (BAR.format(100, 200, "06:40", "4.00s/it"), None, 0.25),
        ("123it [00:10, 12.3it/s]", None, 12.3),
        ("step 100: loss 2.1, 3.5 steps/s", None, 3.5),
        ("step 100: 3.5 steps/sec", None, 3.5),
        ("speed 1.25 iterations/s", None, 1.25),
        ("steps_per_second: 6.5", None, 6.5),
        ("epoch 1 20ms/step", None, 50.0),
        ("elapsed time per iteration (ms): 250.0 | learning rate", None, 4.0),
        ("\x1b[32m3.5\x1b[0m steps/s", None, 3.5),
        ("throughput 400 samples/s", None, None),
        ("100.0 MB/s and 3.5 tokens/s", None, None),
        ("", None, None),
    ],
)
def test_the_usual_forms_are_read(log: str, runtime: float | None, steps: float | None) -> None:
    found = read_figures(log.splitlines())
    assert found.runtime == (None if runtime is None else pytest.approx(runtime))
    assert found.steps_per_second == (None if steps is None else pytest.approx(steps))


def test_of_several_bars_the_one_that_took_longest_counts_in_its_last_line() -> None:
    log = [
        "Loading: 100%|███| 2/2 [00:01<00:00, 1.50it/s]",
        "train: " + BAR.format(1, 200, "00:01", "1.00it/s"),
        "train: " + BAR.format(200, 200, "01:40", "2.00it/s"),
        "eval: " + BAR.format(10, 10, "00:02", "5.00it/s"),
    ]
    assert read_figures(log).steps_per_second == 2.0


def test_the_trainers_own_figure_counts_before_a_bar_and_a_bar_before_other_words() -> None:
    words, bar = "1.0 steps/s", BAR.format(9, 9, "00:09", "2.00it/s")
    own = "{'train_runtime': 9.0, 'train_steps_per_second': 3.0}"
    assert read_figures([words, bar, own]).steps_per_second == 3.0
    assert read_figures([own, bar, words]).steps_per_second == 3.0
    assert read_figures([bar, words]).steps_per_second == 2.0


def test_a_users_pattern_finds_the_last_number() -> None:
    pattern = read_metric(r"tok/s: ([\d,.]+)")
    found = read_figures(["tok/s: 1,200", "x tok/s: 1,300.5 tok/s: 1,400", "tok/s: ,", "done"], pattern)
    assert found == Figures(metric=1400.0)


@each_row("pattern", ["(", "loss", "(a)(b)", "a" * 10 + "{99999999999}"])
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=r"group|regular expression"):
        read_metric(pattern)


def test_numbers_out_of_bounds_and_very_long_lines_are_no_figures() -> None:
    read_figures(["|1/2 [::<, 1it/s"])
    assert read_figures(["|1/2 [00:01<, .it/s", "|1/2 [00:01<, 0it/s"]) == Figures()
    assert read_figures(["train_runtime: 1e999", "0 s/it", "0ms/step"]) == Figures()
    assert read_figures(["3 steps/s" + "x" * 5_000_000]) == Figures()


@pytest.mark.parametrize("piece", ["1|2/3 [", "9", "9 ", "|1/2 [0:0<", "train_runtime': ", "1 it / ", "1:"])
def test_no_line_takes_long(piece: str) -> None:
    line = piece * (4000 // len(piece)) + "/s"
    assert_costs(2.0, lambda: cpu_seconds(lambda: read_figures([line] * 200)))
