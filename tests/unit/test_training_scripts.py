"""Scripts like those of training repositories: the reading of each equals the commands that it starts."""

from __future__ import annotations

from gputui.launching.shell_script import read_shell
from gputui.launching.started_script import launcher_words
from table_tests import each_row
from unit.training_scripts import TRAININGS

NOT_FOLLOWED = (
    *("getopts", "llava in chunks", "the first n", "where it runs", "a loop over seeds", "one or several"),
    *("openrlhf", "qwen", "eval of a command with a date in it", "sh without bash"),
    "accelerate on eight devices",
)
"""Their unknown parts are reported: getopts, seq, a slice of an array, a branch, `eval`, a program's
count."""

VISIBLE = "CUDA_VISIBLE_DEVICES"


@each_row("name", TRAININGS)
def test_what_a_training_script_starts(name: str) -> None:
    training = TRAININGS[name]
    found, followed = read_shell(training.text, training.arguments, training.environ)
    assert followed
    launched = [
        each
        for each in found
        if launcher_words(each.words)
        or "torch.distributed.run" in each.words
        or (each.words[0] == "python" and VISIBLE in each.variables)
    ]
    shown = []
    for each in launched:
        value = each.not_known.get(VISIBLE) and "?"
        shown.append((each.words, value or each.variables.get(VISIBLE, training.environ.get(VISIBLE))))
    if name in NOT_FOLLOWED:
        assert all(each.unknown or each.not_known or not each.certain for each in launched)
        return
    assert len(launched) == len(training.starts), shown
    for each, (words, visible), (line, expected) in zip(launched, shown, training.starts, strict=True):
        assert " ".join(words).startswith(line.partition("…")[0].rstrip()), shown
        assert visible == expected
        assert each.certain is not training.perhaps
