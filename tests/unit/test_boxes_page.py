"""Boxes on the page of nodes, over a real ssh: a selection there starts there, and nowhere else."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.terminal import Terminal
from gputui.allocating.device_request import DeviceRequest
from gputui.choosing.named_devices import short_names
from gputui.inventory.device import Device
from gputui.jobs.box_calls import start_detached
from gputui.launching.launch_options import LaunchOptions
from gputui.requesting.launch_request import LaunchRequest
from simnvml import SimulatedNvml
from ssh_boxes import KEYGEN, PROGRAMS, SshBoxes
from unit.builders import box, gpu
from unit.claims_support import Elsewhere

pytestmark = pytest.mark.skipif(not PROGRAMS, reason="no sshd, ssh and ssh-keygen")

DEVICES = gpu(0), gpu(1)
COMMAND = ("sh", "-c", "echo given-$CUDA_VISIBLE_DEVICES")


class There:
    """A box with two free devices: its name, its claims, and the environment of a local gputui."""

    def __init__(self, name: str, claims: Path, environ: dict[str, str]) -> None:
        self.name, self.claims, self.environ = name, {"GPUTUI_CLAIMS": str(claims)}, environ


@pytest.fixture
def there(
    boxes: SshBoxes, simulated_nvml: SimulatedNvml, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[There]:
    simulated_nvml.show(box(*DEVICES))
    found = simulated_nvml.environment()
    claims = tmp_path / "claims-there"
    names = ("LD_LIBRARY_PATH", "SIMNVML_BOX", "SIMNVML_CONTROL", "SIMNVML_COUNTS")
    environ = {name: found[name] for name in names} | {"GPUTUI_CLAIMS": str(claims)}
    name = f"page-{abs(hash(request.node.nodeid))}"
    home = boxes.add(name, environ)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "gputui" / "config.toml"
    config.write_text(f'[hosts]\nconnect_timeout = 5\nboxes = ["{name}"]\n')
    # A directory of the same name exists on the box.
    ours = {
        **os.environ,
        **{name: found[name] for name in names},
        "HOME": str(home),
        "TERM": "xterm-256color",
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }
    yield There(name, claims, boxes.environment(ours))


@pytest.fixture
def locked(boxes: SshBoxes, there: There) -> Iterator[There]:
    """The same box, with a key that has a passphrase, and a persistent master connection."""
    key = boxes.folder / f"locked-{there.name}"
    made = [str(KEYGEN), "-q", "-t", "ed25519", "-N", "secret", "-f", str(key)]
    subprocess.run(made, check=True, stdin=subprocess.DEVNULL)
    authorized = boxes.folder / "authorized"
    authorized.write_bytes(authorized.read_bytes() + key.with_suffix(".pub").read_bytes())
    with tempfile.TemporaryDirectory() as folder:
        # The path of a socket must be short.
        master = f"  ControlMaster auto\n  ControlPath {folder}/m\n  ControlPersist 60\n"
        name = f"locked-{there.name}"
        home = boxes.add(name, options=f"  IdentityFile {key}\n{master}")
        shutil.copy(boxes.folder / f"{there.name}.env", boxes.folder / f"{name}.env")
        with (boxes.folder / f"{name}.env").open("a") as file:
            file.write(f"export HOME={home} PATH={home}/bin:/usr/bin:/bin\n")
        config = Path(there.environ["XDG_CONFIG_HOME"]) / "gputui" / "config.toml"
        config.write_text(f'[hosts]\nconnect_timeout = 5\nboxes = ["{name}"]\n')
        yield there
        argv = [str(boxes.path / "ssh"), "-S", f"{folder}/m", "-O", "exit", "any"]
        subprocess.run(argv, capture_output=True, check=False)


def test_what_ssh_asks_is_answered_in_the_lent_terminal_and_then_the_box_is_live(
    locked: There, tmp_path: Path
) -> None:
    argv = [sys.executable, "-m", "gputui", "--", *COMMAND]
    terminal = Terminal(argv, locked.environ, (120, 30), cwd=tmp_path)
    try:
        terminal.until("○ free")
        terminal.send(":nodes\r")
        terminal.until("dead").until(":ssh asks here")
        terminal.send(":ssh\r")
        terminal.until("Enter passphrase")
        terminal.send("secret\r")
        terminal.until("press Enter")
        terminal.send("\r")
        terminal.until("2 of 2 free")
    finally:
        terminal.close()


@pytest.fixture
def page(there: There, tmp_path: Path) -> Iterator[Terminal]:
    argv = [sys.executable, "-m", "gputui", "--", *COMMAND]
    terminal = Terminal(argv, there.environ, (120, 30), cwd=tmp_path)
    try:
        terminal.until("○ free")
        terminal.send(":nodes\r")
        terminal.until("2 of 2 free")
        yield terminal
    finally:
        terminal.close()


@pytest.mark.usefixtures("terminals_there")
def test_the_command_runs_there_on_the_selected_devices_in_their_order(page: Terminal) -> None:
    page.send("1")
    page.until(selected(1, 1))
    page.send("0")
    page.until(selected(2, 0))
    names = short_names([DEVICES[1].key, DEVICES[0].key], box(*DEVICES))
    page.until(f"{','.join(names)} --")
    page.send("r")
    page.until("given-1,0").until("press Enter")
    page.send("\r")
    page.until("launch:")


def selected(place: int, index: int) -> Callable[[Terminal], object]:
    """Whether the screen shows the device with that index as the n-th selected, at any column width."""
    return lambda terminal: re.search(rf"\[{place}\] +{index} ", terminal.text)


def on(device: Device, options: LaunchOptions) -> LaunchRequest:
    return LaunchRequest(options, DeviceRequest(names=device.key, if_free=True))


@pytest.mark.thorough
def test_a_job_there_is_seen_with_its_log_followed_and_stopped(page: Terminal, there: There) -> None:
    options = LaunchOptions(
        ("sh", "-c", "echo fir''st; while [ ! -e more ]; do sleep 0.05; done; echo sec''ond; exec sleep 600"),
        directory=".",
    )
    text, good = start_detached(there.name, on(DEVICES[0], options), there.environ)
    assert good, text
    page.send("D")
    page.until(f"{there.name}:").until("running").until("log of").until("first")
    page.send("\r")
    page.until(f"gputui jobs log -f -n 1000 {there.name}:")
    (Path(there.environ["HOME"]) / "more").touch()
    page.until("second")
    # Ctrl-C ends the following of the log, and not the job.
    page.send("\x03")
    page.until("press Enter")
    page.send("\r")
    page.until("jobs of other boxes")
    page.send("S")
    page.until("⏎ yes")
    page.send("\r")
    page.until("■ stopped")


@pytest.mark.thorough
@pytest.mark.usefixtures("terminals_there")
def test_a_device_that_is_claimed_there_by_then_is_refused(page: Terminal, there: There) -> None:
    page.send("1")
    page.until(selected(1, 1))
    other = Elsewhere([DEVICES[1].key], there.claims, "other.py")
    try:
        page.send("r")
        page.until("status 4")
        assert "given-1" not in page.text
    finally:
        other.release()


def test_a_job_is_started_there_or_it_is_said_why_not(there: There) -> None:
    options = LaunchOptions(COMMAND, directory=".")
    text, good = start_detached(there.name, on(DEVICES[0], options), there.environ)
    assert good and f"{there.name}:" in text
    other = Elsewhere([DEVICES[1].key], there.claims, "other.py")
    try:
        text, good = start_detached(there.name, on(DEVICES[1], options), there.environ)
    finally:
        other.release()
    assert not good and "GPU 1" in text
    assert not start_detached("no-such-box", on(DEVICES[1], options), there.environ)[1]
