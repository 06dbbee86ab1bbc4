"""The dotenv form: python-dotenv and the real `docker run --env-file` read our values from it."""

from __future__ import annotations

import io
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from gputui.launching.exports import ExportError
from gputui.launching.exports.dotenv import to_dotenv
from gputui.launching.launch import Launch
from table_tests import each_row
from unit.docker_daemon import Daemon, daemon
from unit.test_quoting_in_shells import HOSTILE, words


def _can_be(value: str) -> bool:
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return "${" not in value


MORE = [
    "a # b",
    "a #b",
    "#b",
    "'a'",
    '"a',
    "a'b",
    "a`",
    "`a",
    "$A",
    "a b",
    "a  b",
    "x\\",
    "\\n",
    "a\u00a0#b",
    "\x1c",
]
VALUES = [value for value in (*HOSTILE, *MORE) if _can_be(value)]
values_of = st.one_of(
    st.sampled_from(VALUES),
    words,
    st.text(st.sampled_from("'\"`\\ #$\n\r\tab={}\x85\u2028é"), max_size=8),
).filter(_can_be)


def _launch(values: list[str], *argv: str) -> Launch:
    return Launch(argv, tuple((f"VALUE_{place}", value) for place, value in enumerate(values)))


def _read(text: str) -> dict[str, str | None]:
    return dict(dotenv_values(stream=io.StringIO(text + "\n")))


def test_python_dotenv_reads_hostile_values_from_a_file(tmp_path: Path) -> None:
    launch = _launch(VALUES, "python", "new\nline", "caf é")
    file = tmp_path / ".env"
    file.write_bytes(to_dotenv(launch).encode() + b"\n")
    assert dict(dotenv_values(file)) == dict(launch.changes)


@given(st.lists(values_of, max_size=6))
@settings(max_examples=80, deadline=None)
@example(["a\\'b", "\\'"])
def test_python_dotenv_reads_any_values(values: list[str]) -> None:
    launch = _launch(values)
    assert _read(to_dotenv(launch)) == dict(launch.changes)


def test_the_launch_is_a_comment_of_one_line() -> None:
    text = to_dotenv(Launch(("python", "a\nb=c"), (("A", "1"),)))
    assert text.splitlines() == ["# A=1 python $'a\\nb=c'", "A=1"]


def test_of_a_variable_that_is_set_twice_the_last_value_is_written() -> None:
    assert to_dotenv(Launch((), (("A", "1"), ("A", "2")))) == "A=2"


@each_row(
    ("change", "reason"),
    [(("A", None), "unset A"), (("A", "x${HOME}y"), "replace"), (("A", "caf\udce9"), "UTF-8")],
)
def test_what_such_a_file_cannot_say_is_refused(change: tuple[str, str | None], reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        to_dotenv(Launch(("x",), (change,)))


@pytest.fixture(scope="module")
def docker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon that records the requests of the real docker."""
    if shutil.which("docker") is None:
        pytest.skip("docker is not installed")
    with daemon(tmp_path_factory.mktemp("docker")) as made:
        yield made


@given(st.lists(values_of, min_size=1, max_size=12))
@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@example(VALUES)
def test_docker_reads_the_same_where_the_file_does_not_say_otherwise(
    docker: Daemon, values: list[str]
) -> None:
    launch = _launch(values, "x")
    text, file = to_dotenv(launch), docker.socket.parent / "variables.env"
    file.write_bytes(text.encode() + b"\n")
    asked = docker.run(f"docker run -it --env-file {shlex.quote(str(file))} image".encode())
    seen = dict(entry.split("=", 1) for entry in asked["Env"])
    said = {line[2:].partition(":")[0] for line in text.split("\n") if line.startswith("# VALUE_")}
    assert {name: seen[name] for name, _ in launch.changes if name not in said} == {
        name: value for name, value in launch.changes if name not in said
    }
    assert all(seen[name] != value for name, value in launch.changes if name in said)


def test_the_variables_of_devices_read_alike_everywhere() -> None:
    changes = (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"), ("CUDA_VISIBLE_DEVICES", "5,4"), ("EMPTY", ""))
    assert to_dotenv(Launch((), changes)) == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID\nCUDA_VISIBLE_DEVICES=5,4\nEMPTY="
    )
