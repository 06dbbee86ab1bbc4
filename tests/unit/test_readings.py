"""Readings over time: as CSV and JSON Lines, replayed at their own pace; and the recorder of usage."""

from __future__ import annotations

import csv
import errno
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path

import pytest

from gputui.choosing.verdict import verdicts
from gputui.choosing.verdict_text import for_document
from gputui.cli import recorder
from gputui.inventory.document import to_document
from gputui.inventory.document_reader import from_document
from gputui.inventory.readings import HEAD, documents, rows
from gputui.inventory.snapshot import Snapshot
from gputui.inventory.typed_json import DocumentError
from gputui.sources.recorded import RecordedSource
from gputui.sources.simulated.boxes import BOXES
from gputui.sources.simulated.motion import at
from gputui.sources.source import NoSourceError, Want
from gputui.timeline.keeper import Keeper
from table_tests import each_row
from unit.builders import NOW, box, busy, document, gpu, job, recording
from unit.calling import Call


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def film(count: int = 4) -> list[Snapshot]:
    """Readings a second apart, with another utilization in each."""
    return [box(replace(busy(gpu(0)), utilization=n), gpu(1), time=NOW + n) for n in range(count)]


def written(folder: Path, kind: str, snapshots: list[Snapshot]) -> Path:
    file = folder / f"run.{kind}"
    texts = [
        rows(document(each)) if kind == "csv" else json.dumps(document(each)) + "\n" for each in snapshots
    ]
    file.write_text((HEAD.decode() if kind == "csv" else "") + "".join(texts))
    return file


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_the_usage_in_a_recording(tmp_path: Path, call: Call, kind: str) -> None:
    # Of two days: the first one ends after three readings.
    midnight = time.mktime((2026, 11, 27, 0, 0, 0, 0, 0, -1))
    readings = [replace(each, time=midnight - 3 + n) for n, each in enumerate(film(6))]
    file = str(written(tmp_path, kind, readings))
    told = call("usage", "--from", file, "--json").json
    mira = next(row for row in told["rows"] if row["user"] == "mira")
    assert (told["recorded"], mira["held"], mira["busy"]) == (5, 5, 5)
    by_day = call("usage", "--from", file, "--by", "day", "--json").json["rows"]
    assert [(row["day"], row["held"]) for row in by_day] == [("2026-11-26", 2), ("2026-11-27", 3)]
    assert "mira" in call("usage", "--from", file).out


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_recording_whose_recorder_was_killed_has_the_usage_up_to_there(
    tmp_path: Path, call: Call, kind: str
) -> None:
    file = written(tmp_path, kind, film(4))
    file.write_bytes(file.read_bytes() + file.read_bytes().splitlines()[-1][:30] + b"\n")
    told = call("usage", "--from", str(file), "--json")
    # In a table, the line is one of the last reading.
    whole = 3 if kind == "csv" else 4
    assert told.status == 0 and json.loads(told.out)["recorded"] == whole - 1
    assert f"reading {whole + 1}" in told.err


@pytest.mark.parametrize("left", [30, 200])
def test_a_reading_of_a_table_that_is_cut_off_is_not_shown(tmp_path: Path, call: Call, left: int) -> None:
    readings = film(3)
    file = written(tmp_path, "csv", readings[:2])
    # The heading, and two devices of each reading: the last one is cut in its second line.
    first, second = rows(document(readings[2])).splitlines()
    file.write_text(file.read_text() + f"{first}\n{second[:left]}")
    clock = Clock()
    source = RecordedSource(str(file), clock)
    source.open()
    clock.now += 10.0
    assert load(source) == 1
    with pytest.raises(NoSourceError, match="reading 3"):
        source.read()
    told = call("usage", "--from", str(file), "--json")
    assert json.loads(told.out)["recorded"] == 1 and "reading 3" in told.err


def test_a_day_of_which_nothing_was_seen_is_no_day(tmp_path: Path, call: Call) -> None:
    midnight = time.mktime((2026, 11, 27, 0, 0, 0, 0, 0, -1))
    readings = [replace(each, time=midnight - 1 + n) for n, each in enumerate(film(4))]
    told = call("usage", "--from", str(written(tmp_path, "jsonl", readings)), "--by", "day", "--json").json
    assert told["recorded"] == 3 and [row["day"] for row in told["rows"]] == ["2026-11-27"]
    assert told["since"].startswith("202")


def test_what_has_no_usage_is_refused(tmp_path: Path, call: Call) -> None:
    single = recording(tmp_path, film()[0])
    assert "one reading" in call("usage", "--from", single).refused(2)
    assert "--root" in call("usage", "--root", str(tmp_path)).refused(2)
    assert "--since" in call("usage", "--demo", "--since", "1d").refused(2)
    assert call("usage", "--from", str(tmp_path / "none")).status == 3


def load(source: RecordedSource) -> int | None:
    return source.read().devices[0].utilization


@pytest.mark.parametrize("kind", ["csv", "jsonl"])
def test_a_recording_is_replayed_at_its_own_pace(tmp_path: Path, kind: str) -> None:
    clock = Clock()
    source = RecordedSource(str(written(tmp_path, kind, film())), clock)
    assert load(source) == 0 and source.read().time == NOW
    for passed, expected in ((0.9, 0), (1.0, 1), (2.5, 2), (3.0, 3), (1000.0, 3)):
        clock.now = 100.0 + passed
        assert (load(source), source.read().time) == (expected, NOW + expected)
    source.close()


@each_row("name", sorted(BOXES))
def test_every_box_is_the_same_after_a_table(tmp_path: Path, name: str) -> None:
    snapshot = at(BOXES[name], 30.0, NOW)
    file = written(tmp_path, "csv", [snapshot, replace(snapshot, time=snapshot.time + 1)])
    found = RecordedSource(str(file)).read()
    want = to_document(snapshot, for_document(verdicts(snapshot), snapshot.time))["devices"]
    got = to_document(found, for_document(verdicts(found), found.time))["devices"]
    for each in (*want, *got):
        # A table has no claims, and the verdict follows from them.
        del each["claim"], each["verdict"]
    assert got == want


@each_row("kind", ["csv", "jsonl"])
@each_row("damage", ["{]", "a,b", '{"schema": 1}', "\x00", "x" * 200_000, '"' * 3])
def test_a_line_that_is_no_reading_ends_the_replay_there(tmp_path: Path, kind: str, damage: str) -> None:
    file = written(tmp_path, kind, film(3))
    file.write_text(file.read_text() + damage + "\n" + damage + "\n")
    clock = Clock()
    source = RecordedSource(str(file), clock)
    source.open()
    clock.now += 10.0
    # What was before it stays, and the reason is said once.
    seen = []
    for _ in range(5):
        try:
            seen.append(load(source))
        except NoSourceError as error:
            seen.append(None)
            said = str(error)
            assert "run." in said and said.isprintable() and "line 1" not in said and "file:" not in said
    assert seen.count(None) == 1 and seen[-1] in (1, 2)


def test_a_table_that_a_spreadsheet_has_saved_is_read(tmp_path: Path) -> None:
    file = written(tmp_path, "csv", film(2))
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    assert load(RecordedSource(str(file))) == 0


@each_row("text", ["", "time;host;index\n", "timestamp, index\n0, 1\n"])
def test_another_table_is_not_called_wrong_json(tmp_path: Path, text: str) -> None:
    (tmp_path / "other.csv").write_text(text)
    with pytest.raises(NoSourceError) as told:
        RecordedSource(str(tmp_path / "other.csv")).read()
    assert "table" in str(told.value) and "line 1" not in str(told.value)


def columns(file: Path, change: Callable[[list[str]], list[str]]) -> None:
    """Change the cells of each line of a table."""
    with file.open(newline="") as stream:
        lines = [change(line) for line in csv.reader(stream)]
    with file.open("w", newline="") as stream:
        csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(lines)


def test_a_table_is_read_by_the_names_of_its_columns(tmp_path: Path) -> None:
    file = written(tmp_path, "csv", film(2))
    want = RecordedSource(str(file)).read()
    # A later gputui may write more columns, and a spreadsheet may have moved them.
    columns(file, lambda line: ["new" if line[0] == "time" else "7", *line[::-1], ""])
    assert RecordedSource(str(file)).read() == want


@each_row("name", ["index", "time", "uuid", "name"])
def test_a_column_that_is_missing_is_said(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, "csv", film(2))
    place = HEAD.decode().strip().split(",").index(name)
    columns(file, lambda line: line[:place] + line[place + 1 :])
    with pytest.raises(NoSourceError, match=rf"reading 1 on: .*\b{name}\b"):
        RecordedSource(str(file)).read()


def test_a_table_without_readings_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NoSourceError):
        RecordedSource(str(written(tmp_path, "csv", []))).read()


def test_a_table_whose_reading_does_not_end_is_read_within_bounds() -> None:
    lines = rows(document(film(1)[0])).splitlines(keepends=True)
    (first, *_), read = lines, 0

    def without_end() -> Iterator[str]:
        nonlocal read
        while read < 5000:
            read += 1
            yield first

    with pytest.raises(DocumentError, match="at most 256 are read"):
        from_document(next(documents(chain([HEAD.decode()], without_end()))))
    assert read < 1100


@pytest.mark.parametrize("name", ["run.csv", "run.jsonl"])
def test_record_every_writes_until_it_is_interrupted(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    made, file = iter(film(3)), str(tmp_path / name)

    def next_document(_: Snapshot, __: object) -> dict[str, object]:
        snapshot = next(made, None)
        if snapshot is None:
            raise KeyboardInterrupt
        return document(snapshot)

    monkeypatch.setattr(recorder, "to_document", next_document)
    monkeypatch.setattr(recorder, "source_of", lambda args: Still())
    monkeypatch.setattr("gputui.sources.sampler.next_turn", lambda began, ended, pace: began)
    assert call("record", "--every", "0.1", "-o", file).status == 0
    source = RecordedSource(file, clock := Clock())
    assert load(source) == 0
    clock.now += 10
    assert load(source) == 2


def test_record_every_writes_whole_readings_only(
    tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sampler's first reading is for a screen: it has no temperature and no power."""

    class Sensed(Still):
        power: float | None = None

        def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
            self.readings += 1
            self.power = 100.0 if Want.SENSORS in want else self.power
            return box(replace(gpu(0), power=self.power), time=NOW + self.readings)

    told = list[float | None]()

    def next_document(snapshot: Snapshot, _: object) -> dict[str, object]:
        if len(told) == 3:
            raise KeyboardInterrupt
        told.append(snapshot.devices[0].power)
        return document(snapshot)

    monkeypatch.setattr(recorder, "to_document", next_document)
    monkeypatch.setattr(recorder, "source_of", lambda args: Sensed())
    monkeypatch.setattr("gputui.sources.sampler.next_turn", lambda began, ended, pace: began)
    assert call("record", "--every", "1", "-o", str(tmp_path / "run.jsonl")).status == 0
    assert told == [100.0] * 3


class Still:
    """A source of one box whose time goes on."""

    label = ""

    def __init__(self) -> None:
        self.readings = 0

    def open(self) -> None: ...

    def read(self, want: Want = Want.ALL, among: Collection[str] | None = None) -> Snapshot:
        self.readings += 1
        return box(busy(gpu(0), job()), time=NOW + 10 * self.readings)

    def close(self) -> None: ...


def test_record_every_of_a_file_that_cannot_be_written(tmp_path: Path, call: Call) -> None:
    assert "cannot write" in call("record", "--demo", "--every", "1", "-o", str(tmp_path)).refused(2)


def test_record_every_replaces_no_recording(tmp_path: Path, call: Call) -> None:
    file = written(tmp_path, "csv", film(2))
    before = file.read_bytes()
    assert "another file" in call("record", "--demo", "--every", "1", "-o", str(file)).refused(2)
    assert file.read_bytes() == before


def test_record_every_ends_as_any_output_whose_reader_has_gone(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.BytesIO):
        def write(self, data: object) -> int:
            raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    @contextmanager
    def output(_: str) -> Iterator[Gone]:
        yield Gone()

    monkeypatch.setattr(recorder, "_output", output)
    said = call("record", "--demo", "--every", "1", "-")
    assert (said.status, said.err) == (128 + 13, "")


@each_row(
    "words",
    [
        ("record",),
        ("record", "a.json", "-o", "b.json"),
        ("record", "--daemon", "a.json"),
        ("record", "--daemon", "--demo"),
        ("record", "--every", "0", "a.csv"),
        ("record", "--every", "1", "--trees", "a.csv"),
    ],
)
def test_wrong_calls_of_record_start_nothing(call: Call, words: tuple[str, ...]) -> None:
    call(*words).refused(2)


def test_the_recorder_keeps_every_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[float] = []

    def keep(_: Keeper, __: object, snapshot: Snapshot) -> None:
        kept.append(snapshot.time)
        if len(kept) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(recorder, "named_source", lambda *words: Still())
    monkeypatch.setattr("gputui.sources.sampler.next_turn", lambda began, ended, pace: began)
    monkeypatch.setattr(Keeper, "keep", keep)
    with pytest.raises(KeyboardInterrupt):
        recorder.run_daemon()
    assert kept == [NOW + 10, NOW + 20, NOW + 30]


def test_the_unit_is_one_that_systemd_accepts(call: Call, tmp_path: Path) -> None:
    text = call("config", "--unit").text
    assert " record --daemon\n" in text
    if verify := shutil.which("systemd-analyze"):
        unit = tmp_path / "gputui.service"
        start = next(line for line in text.splitlines() if line.startswith("ExecStart="))
        unit.write_text(text.replace(start, "ExecStart=/bin/true"))
        subprocess.run([verify, "verify", "--man=no", str(unit)], check=True)


def test_the_unit_starts_this_gputui_however_it_was_called(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # As `python -m gputui` calls itself: a file that cannot be executed.
    monkeypatch.setattr("sys.argv", [str(tmp_path / "__main__.py")])
    (tmp_path / "__main__.py").touch(0o644)
    started = f'ExecStart="{sys.executable}" "-m" "gputui" record --daemon'
    assert started in call("config", "--unit").text.splitlines()
    installed = tmp_path / 'a "100%" gputui'
    installed.touch(0o755)
    monkeypatch.setattr("sys.argv", [str(installed)])
    assert 'a \\"100%%\\" gputui" record --daemon' in call("config", "--unit").text


def test_a_pipe_to_which_nobody_writes_is_not_waited_for(tmp_path: Path, call: Call) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    call("ls", "--from", str(pipe)).refused(3)


def test_a_pipe_of_the_shell_is_waited_for(tmp_path: Path) -> None:
    file = written(tmp_path, "jsonl", film(1))
    words = f"{sys.executable} -m gputui ls --from <(read wait < go; cat {file.name})"
    os.mkfifo(tmp_path / "go")
    with subprocess.Popen(["bash", "-c", words], cwd=tmp_path, stdout=subprocess.PIPE) as shell:
        (tmp_path / "go").write_text("go\n")
        assert b"H100" in shell.communicate(timeout=60)[0] and shell.returncode == 0
