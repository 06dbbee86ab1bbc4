"""The parts of a command that other users may read in records, tickets and `ps`: program and script."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.allocating.queue import waiters
from gputui.inventory.job import WORDS
from gputui.jobs.store import all_jobs
from gputui.launching.secrets import program_and_script, secret_word, without_secrets
from table_tests import each_row
from unit.claims_support import Box, Take, until
from unit.jobs_support import ended

SECRET = f"secret{os.getpid()}word"
"""A text that does not look like a token: only its place gives it away. It differs between the test
processes, since all of them read all command lines."""


@each_row(
    ("line", "told"),
    [
        ("python train.py --lr 3e-4", "python train.py"),
        ("/opt/venv/bin/python3.11 -u -X dev /home/ana/train.py x", "python3.11 train.py"),
        ("python -m pkg.train --key v", "python -m pkg.train"),
        ("python -mpkg.train", "python -m pkg.train"),
        ("python -c 'import x'", "python"),
        ("./train.sh now", "train.sh"),
        ("bash -euo pipefail train.sh now", "bash train.sh"),
        ("bash -c 'HF_TOKEN=x ./train.sh'", "bash"),
        ("env HF_TOKEN=x python train.py", "python train.py"),
        ("sudo -u ana HF_TOKEN=x nice -n 5 python train.py", "python train.py"),
        ("torchrun --nproc-per-node 2 train.py --hub.token x", "torchrun train.py"),
        ("python -m torch.distributed.run -m pkg.train", "torchrun -m pkg.train"),
        ("accelerate launch --config_file a.yaml train.py", "accelerate train.py"),
        ("deepspeed --include localhost:0 train.py", "deepspeed train.py"),
        ("mpirun -np 2 -x HF_TOKEN=x python train.py", "mpirun train.py"),
        ("uv run --with torch torchrun train.py", "torchrun train.py"),
        ("curl -H 'Authorization: x'", "curl"),
        ("bash launch customer.py", "bash"),
        ("bash launch --config prod.sh", "bash"),
        ("bash -cx 'train.py'", "bash"),
        ("fish --command train.py", "fish"),
        ("nice -n 5 ./train.sh", "train.sh"),
        ("nice -n 5 serve model", "nice"),
        ("env -a hunter2 python train.py", "env"),
        ("flock lock -c 'train.py'", "flock"),
        ("nsys profile -e HF_TOKEN=x python train.py", "python train.py"),
        # An unknown option may take the script for its value: then the next word is not the script.
        ("accelerate launch --new-flag train.py hf_abcdefghijkl", "accelerate"),
        ("accelerate launch -m --new-flag pkg sk-abcdefghijkl", "accelerate"),
        # A name with the end of a script's and the beginning of a token.
        ("python eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.sh", "python"),
        ("bash ya29.a0AfH6SMBx.sh", "bash"),
        ("HF_TOKEN=x", ""),
        ("A=1 HF_TOKEN=x python train.py", ""),
        ("", ""),
    ],
)
def test_the_program_and_its_script_are_told(line: str, told: str) -> None:
    assert program_and_script(shlex.split(line)) == told


PROGRAMS = st.sampled_from(
    [
        ("python", "train.py"),
        ("python", "-m", "pkg.train"),
        ("python", "-c"),
        ("bash", "train.sh"),
        ("bash", "-c"),
        ("bash", "-cx"),
        ("bash", "-o", "pipefail", "-c"),
        ("fish", "--command"),
        ("bash", "run_it"),
        ("sh", "-x", "run_it"),
        ("torchrun", "--nproc-per-node=2", "train.py"),
        ("accelerate", "launch", "train.py"),
        ("deepspeed", "train.py"),
        ("mpirun", "-np", "2", "python", "train.py"),
        ("./program",),
        ("nsys", "profile", "-o", "r", "python", "train.py"),
    ]
)
PREFIXES = st.sampled_from(
    [
        (),
        ("env", f"A={SECRET}"),
        ("sudo", "-u", "x", f"B={SECRET}"),
        ("nice",),
        ("env", "-a", SECRET),
        ("uv", "run", "--unknown", SECRET),
    ]
)
ARGUMENTS = st.lists(
    st.sampled_from(
        [SECRET, f"--key={SECRET}", "--key", "-k", f"K={SECRET}", "a b", f"{SECRET}.py", f"{SECRET}.sh"]
    ),
    max_size=5,
)


@given(PREFIXES, PROGRAMS, ARGUMENTS)
@settings(deadline=None)
def test_no_variable_and_no_argument_is_told(
    prefix: tuple[str, ...], program: tuple[str, ...], arguments: list[str]
) -> None:
    assert SECRET not in program_and_script((*prefix, *program, *arguments))


TOKENS = ["hf_" + "AbCdEfGh1" * 4, "sk-proj-" + "a1B2" * 8, "ghp_" + "A1b2" * 9]


@each_row(
    ("line", "kept"),
    [
        ("python t.py --lr 3e-4 x=1", None),
        ("python t.py --token S", "python t.py --token ***"),
        ("python t.py --hub.token=S --lr 1", "python t.py --hub.token=*** --lr 1"),
        ("python t.py ++hub.token=S", "python t.py ++hub.token=***"),
        ("env HF_TOKEN=S DB_PASSWORD=S A=1 python t.py", "env HF_TOKEN=*** DB_PASSWORD=*** A=1 python t.py"),
        ("docker run -e WANDB_API_KEY=S image", "docker run -e WANDB_API_KEY=*** image"),
        ("git clone https://me:S@host/x", "git clone https://me:***@host/x"),
        ("pip install git+https://me:S@host/x", "pip install git+https://me:***@host/x"),
        ("curl -H 'Authorization: Bearer SSSSSSSSS'", "curl -H 'Authorization: Bearer ***'"),
        ("bash -c 'export HF_TOKEN=S; ./t.sh'", "bash -c 'export HF_TOKEN=***; ./t.sh'"),
        ("bash -c 'a && python t.py --api-key S --lr 1'", "bash -c 'a && python t.py --api-key *** --lr 1'"),
        ("huggingface-cli login --token S --x", "huggingface-cli login --token *** --x"),
        ("hf auth login --token=S", "hf auth login --token=***"),
        ("wandb login S", "wandb login ***"),
        ("wandb login --relogin --host https://h:8080 S", "wandb login --relogin --host https://h:8080 ***"),
        ("wandb login --relogin", None),
        ("env A=1 /opt/bin/wandb login S", "env A=1 /opt/bin/wandb login ***"),
        ("python -m wandb login S", "python -m wandb login ***"),
        ("bash -c 'wandb login S && python t.py -p 3'", "bash -c 'wandb login *** && python t.py -p 3'"),
        ("docker login -u me -p S host", "docker login -u me -p *** host"),
        ("podman login -pS host", "podman login -p*** host"),
        ("docker run -p 80:80 image", None),
        ("az login --service-principal -u me -p S", "az login --service-principal -u me -p ***"),
        ("helm registry login h -u me -p S", "helm registry login h -u me -p ***"),
        ("skopeo login -u me -p=S h", "skopeo login -u me -p=*** h"),
        ("mysql -u me -pS db", "mysql -u me -p*** db"),
        ("mysqldump -h h -pS db", "mysqldump -h h -p*** db"),
        ("mysql -u me -p db", None),
        ("mongosh -u me -p S db", "mongosh -u me -p *** db"),
        ("redis-cli -a S get x", "redis-cli -a *** get x"),
        ("sshpass -p S ssh -p 22 h", "sshpass -p *** ssh -p 22 h"),
        ("curl -u me:S https://h:8080/x", "curl -u me:*** https://h:8080/x"),
        ("curl -sSu me:S h", "curl -sSu me:*** h"),
        ("curl -u 1000:3306 h", "curl -u 1000:*** h"),
        ("curl --user me:8080 h", "curl --user me:*** h"),
        ("curl -L --user=me:S h", "curl -L --user=me:*** h"),
        ("bash -c 'curl -u \"me:S\" h; ls -u a:b'", "bash -c 'curl -u \"me:***\" h; ls -u a:b'"),
        ("curl -fsSL -A ua https://h:8080/x", None),
        ("http -a me:S h", "http -a me:*** h"),
        ("aws configure set aws_secret_access_key S", "aws configure set aws_secret_access_key ***"),
        ("python t.py -p 3 -u a:b login x", None),
        ("curl -H 'X-Api-Key: SSSSSS' h", "curl -H 'X-Api-Key: ***' h"),
        ("curl -H 'Authorization: token SSSSSS' h", "curl -H 'Authorization: token ***' h"),
        ("git clone https://0123456789abcdefghij@host/x", "git clone https://***@host/x"),
        ("pip install git+ssh://git@host/x", None),
        (
            """python t.py '{"hub": {"token": "S", "a": 1}}'""",
            """python t.py '{"hub": {"token": "***", "a": 1}}'""",
        ),
        ("python t.py 'hub: {token: SSSSSS, a: 1}'", "python t.py 'hub: {token: ***, a: 1}'"),
        ("python t.py '++hub={token:SSSSSS}'", "python t.py '++hub={token:***}'"),
        ('python -c \'e["HF_TOKEN"] = "S"; f()\'', 'python -c \'e["HF_TOKEN"] = "***"; f()\''),
        ("python -c 'login(token = \"a b\")'", "python -c 'login(token = \"***\")'"),
        ("singularity exec --env A=1,HF_TOKEN=S i", "singularity exec --env A=1,HF_TOKEN=*** i"),
        ("python t.py 'Server=h;Password=S;'", "python t.py 'Server=h;Password=***;'"),
        ("bash -c 'export HF_TOKEN=$(pass hf); x'", "bash -c 'export HF_TOKEN=***; x'"),
        ("python t.py --hubToken S --apiKey=S", "python t.py --hubToken *** --apiKey=***"),
        (
            "python t.py --openai-key S --db-pass S --jwt S",
            "python t.py --openai-key *** --db-pass *** --jwt ***",
        ),
        ("python t.py '-----BEGIN PRIVATE KEY-----S'", "python t.py '-----BEGIN PRIVATE KEY-----***'"),
        ("python t.py --pad-token '<pad>' --eos_token=x --max-tokens 5 --sort-key loss", None),
        ("python -c 'f(pad_token=\"<pad>\"); g = lambda token: f(token); x: int = 0'", None),
        ("docker run --user 1000:1000 -v /a:/b:ro i", None),
        *((f"bash -c 'echo ({token})>f'", "bash -c 'echo (***)>f'") for token in TOKENS),
        *((f"python t.py {token}", "python t.py ***") for token in TOKENS),
        *((f"python t.py --login={token}", "python t.py --login=***") for token in TOKENS),
        *((f"bash -c 'x {token}'", "bash -c 'x ***'") for token in TOKENS),
    ],
)
def test_a_mark_stands_for_each_secret_and_everything_else_stays(line: str, kept: str | None) -> None:
    words = shlex.split(line)
    found, names = without_secrets(words)
    assert found == tuple(shlex.split(kept or line)) and bool(names) == (kept is not None)
    assert bool(secret_word(words)) == bool(names)
    assert without_secrets(found)[0] == found


GIVEN = [
    ("wandb login S", "wandb login ***"),
    ("docker login -u me -pS h", "docker login -u me -p*** h"),
    ("docker login -u me -p S h", "docker login -u me -p *** h"),
    ("helm registry login -u me -pS h", "helm registry login -u me -p*** h"),
    ("mysql -pS db", "mysql -p*** db"),
    ("mariadb-dump -u me -pS db", "mariadb-dump -u me -p*** db"),
    ("mongosh -pS db", "mongosh -p*** db"),
    ("mongosh -p S db", "mongosh -p *** db"),
    ("redis-cli -aS get x", "redis-cli -a*** get x"),
    ("redis-cli -a S get x", "redis-cli -a *** get x"),
    ("redis-cli --pass=S get x", "redis-cli --pass=*** get x"),
    ("sshpass -pS ssh -p 22 h", "sshpass -p*** ssh -p 22 h"),
    ("sshpass -v -p S ssh h", "sshpass -v -p *** ssh h"),
    ("curl -ume:S h", "curl -ume:*** h"),
    ("curl -sSume:S h", "curl -sSume:*** h"),
    ("curl -u me:S h", "curl -u me:*** h"),
    ("curl -o f -U me:S h", "curl -o f -U me:*** h"),
    ("curl --proxy-user=me:S h", "curl --proxy-user=me:*** h"),
    ("http -ame:S h", "http -ame:*** h"),
    ("http -v --auth me:S h", "http -v --auth *** h"),
    ("aws configure set --profile p x_secret_key S", "aws configure set --profile p x_secret_key ***"),
]
PASSWORDS = ["hunter2", "p w", "a;b|c", "a&b", "$a`b", "x<y>", "a(b)c", "pä\nss"]


def _with(password: str, line: str) -> list[str]:
    return [word.removesuffix("S") + password * word.endswith("S") for word in line.split()]


@each_row(("line", "kept"), GIVEN)
def test_a_word_that_a_program_takes_as_a_secret_is_marked_as_a_whole(line: str, kept: str) -> None:
    for password in PASSWORDS:
        words = _with(password, line)
        for before in [(), ("env", "A=1"), ("timeout", "5"), ("docker", "exec", "-it", "db")]:
            assert without_secrets((*before, *words))[0] == (*before, *kept.split())
        others = ("--url", "https://x/?a=1&b=2", "-o", "f;g", *(f"--option-{n}" for n in range(40)))
        if words[0] in ("curl", "http", "redis-cli"):
            assert without_secrets((words[0], *others, *words[1:]))[0][-len(words) + 1 :] == tuple(
                kept.split()[1:]
            )


@each_row(("line", "kept"), GIVEN)
def test_the_same_within_the_text_of_a_shell(line: str, kept: str) -> None:
    for password in PASSWORDS:
        words = _with(password, line)
        call = shlex.join(words)
        for text in (call, f"cd 'a;b' && {call} >f 2>&1; echo x", f"x=$({call})", f"a |\\\n  {call}"):
            for command in (("sh", "-c", text), ("sh", "-c", shlex.join(("bash", "-c", text)))):
                found, names = without_secrets(command)
                assert names and password not in found[2] and "***" in found[2]
                assert without_secrets(found)[0] == found
        assert shlex.split(without_secrets(("sh", "-c", call))[0][2]) == kept.split()
    assert without_secrets(("sh", "-c", f"a; {line}"))[0] == ("sh", "-c", f"a; {kept}")


@each_row(
    ("text", "kept"),
    [
        ("sshpass -p 'my pass word' ssh h", "sshpass -p '***' ssh h"),
        ("mysql '-pab;cd' db", "mysql '-p***' db"),
        ("mysql -p'ab;cd' db", "mysql -p'***' db"),
        ('mysql -pa"b c"d db', "mysql *** db"),
        ("sshpass \\\n -p S ssh h", "sshpass \\\n -p *** ssh h"),
        ("don't; curl -u me:S h", "don't; curl -u me:*** h"),
        ("# don't\ncurl 'x' -u me:S", "# don't\ncurl 'x' -u me:***"),
        ("a # curl -u me:S don't\nb", "a # curl -u me:*** don't\nb"),
        ("cat <<E\nit's\nE\ncurl 'x' -u me:S", "cat <<E\nit's\nE\ncurl 'x' -u me:***"),
        ("wandb login >log 2>&1 S", "wandb login >log 2>&1 ***"),
        ("curl x 2>&1 -u me:S", "curl x 2>&1 -u me:***"),
    ],
)
def test_the_rest_of_a_shells_text_stays(text: str, kept: str) -> None:
    assert without_secrets(("sh", "-c", text))[0] == ("sh", "-c", kept)


@each_row(
    "line",
    [
        "docker run -p 8080:80 image",
        "docker run --name mysql -p3306:3306 mysql",
        "docker run --name mongo -p 127.0.0.1:27017:27017/tcp mongo",
        "mysql -P 3306 -h h db",
        "mysql -p db",
        "mongosh -p --host h",
        "ssh -p 22 h",
        "sshpass -e ssh -p 22 h",
        "sshpass -f file scp -p a h:b",
        "python train.py -p 3 -a x:y -u a:b",
        "python train.py --user 1000:1000",
        "curl -o u:x https://h:8080/x",
        "curl -u me h",
        "ls -u a:b",
        "wandb login --relogin --host https://h",
        "aws configure set region eu",
        "docker login h",
        "sh -c 'curl h; ls -u a:b'",
        "sh -c 'wandb login 2>/dev/null >log'",
        "sh -c 'mysql db <a; python t.py -p3'",
    ],
)
def test_what_is_no_secret_stays(line: str) -> None:
    assert without_secrets(shlex.split(line)) == (tuple(shlex.split(line)), ())


def test_a_header_has_any_characters() -> None:
    words = ("curl", "-H", "X-Api-Key: a;b 'c'", "--header", "Authorization: Basic a;b", "-H", "Accept: */*")
    kept = ("curl", "-H", "X-Api-Key: ***", "--header", "Authorization: Basic ***", "-H", "Accept: */*")
    assert without_secrets(words)[0] == kept


LENGTH = 2**12


@each_row(
    "part",
    [
        "a",
        " ",
        "-",
        "curl ",
        "curl -u ",
        "curl -u'",
        "-p",
        "'\"",
        "\\'",
        'a="',
        "a='",
        "token: ",
        "token=",
        "--token ",
        "a://",
        "a://a:",
        "hf_a",
        "$(",
        "docker login ",
        "wandb login -a ",
        "a-",
        "2>&1",
        " #a",
        "<<a\n",
        "\\\n",
        "'sh -c ",
    ],
)
def test_a_long_word_takes_a_moment(part: str) -> None:
    """4 KiB are read in a fraction of a second, whatever they repeat; a quadratic reading takes seconds."""
    word = (part * LENGTH)[:LENGTH]

    def read() -> None:
        without_secrets(("sh", "-c", f"curl {word}", f"--{word}"))
        without_secrets(("curl", *word.split(" ")[:2000]))

    assert_costs(0.5, lambda: cpu_seconds(read))


FRAGMENTS = [
    "--token",
    "A_KEY=",
    "x=y",
    "a://b:c@d",
    "-p 1",
    "wandb",
    "login",
    "curl",
    "-u",
    "a:b",
    "'",
    "\x1f",
]


@given(st.lists(st.text(max_size=30) | st.sampled_from(FRAGMENTS)))
@settings(deadline=None)
def test_whatever_the_words_only_values_change(words: list[str]) -> None:
    found, names = without_secrets(words)
    assert len(found) == len(words) and (names or found == tuple(words))


def kept_of(folder: Path) -> bytes:
    """All files in the folder of a job except its log."""
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file() and file.name != "log")


@pytest.mark.parametrize("waits", [(), ("--wait", "--window", "0")])
def test_the_record_of_a_job_has_no_secret_while_it_runs_and_after(box: Box, waits: tuple[str, ...]) -> None:
    words = ("run", "-q", "--detach", *waits, "-n", "1", "--env", f"API_KEY={SECRET}", "--")
    command = (
        "env",
        f"HF_TOKEN={SECRET}",
        "sh",
        "-c",
        'echo "$API_KEY $HF_TOKEN $2"',
        "x",
        "--hub.token",
        SECRET,
    )
    assert box.call(*words, *command)[0] == 0
    (job,) = all_jobs(box.environ)
    assert ended(job).status == 0
    assert job.log.read_text().endswith(f"{SECRET} {SECRET} {SECRET}\n"), "it ran with them"
    assert SECRET.encode() not in kept_of(job.folder)
    (job,) = all_jobs(box.environ)
    assert job.withheld == ("HF_TOKEN", "--hub.token")
    for call in (("jobs", "show"), ("jobs", "show", "--command"), ("jobs", "--json")):
        shown = box.call(*call, *([job.id] if "show" in call else []))[1]
        assert SECRET not in shown and "***" in shown


def test_a_rerun_says_which_secrets_must_be_typed_again(box: Box) -> None:
    assert box.call("run", "-q", "--detach", "-n", "1", "--", "env", f"HF_TOKEN={SECRET}", "true")[0] == 0
    (job,) = all_jobs(box.environ)
    ended(job)
    status, out, err = box.call("jobs", "rerun", job.id)
    assert (status, out) == (2, "") and "HF_TOKEN" in err
    assert len(all_jobs(box.environ)) == 1


def test_a_rerun_takes_secret_variables_from_its_own_environment_or_its_options(box: Box) -> None:
    words = (
        "run",
        "-q",
        "--detach",
        "-n",
        "1",
        "--env",
        f"HF_TOKEN={SECRET}",
        "--",
        "sh",
        "-c",
        "echo $HF_TOKEN",
    )
    assert box.call(*words)[0] == 0
    (job,) = all_jobs(box.environ)
    ended(job)
    assert "set HF_TOKEN" in box.call("jobs", "rerun", job.id, "-q")[2]
    assert box.call("jobs", "rerun", job.id, "-q", "--env", f"HF_TOKEN={SECRET}")[0] == 0
    assert box.call("jobs", "rerun", job.id, "-q", HF_TOKEN=SECRET)[0] == 0
    for each in all_jobs(box.environ):
        ended(each)
        assert each.log.read_text().endswith(f"{SECRET}\n")
        assert SECRET.encode() not in kept_of(each.folder)


# in the folder that all users share


def shared(box: Box) -> bytes:
    """All files in the folder of claims."""
    return b"".join(file.read_bytes() for file in box.claims_folder.iterdir() if file.is_file())


def seen_in_ps() -> bytes:
    """The command lines of all processes but this one, as every user can read them."""
    found = b""
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        if file.parent.name != str(os.getpid()):
            try:
                found += file.read_bytes()
            except OSError:
                # The process has ended.
                continue
    return found


def test_a_record_has_no_variable_and_no_argument_of_the_command(box: Box) -> None:
    words = (
        "run",
        "-q",
        "--env",
        f"KEY={SECRET}",
        "-n",
        "1",
        "--",
        f"TOKEN={SECRET}",
        "env",
        f"HF_TOKEN={SECRET}",
    )
    job = box.start(*words, "sh", "-c", "echo up; exec sleep 1000", SECRET)
    until(lambda: job.out)
    assert [claim.command for claim in box.claims()] == ["sh"]
    assert SECRET.encode() not in shared(box)
    job.kill()
    assert SECRET.encode() not in shared(box)


def test_a_ticket_has_no_variable_and_no_argument_of_the_command(box: Box) -> None:
    box.hold(*range(8))
    words = (
        "run",
        "-q",
        "--wait",
        "--env",
        f"KEY={SECRET}",
        "-n",
        "1",
        "--",
        f"HF_TOKEN={SECRET}",
        "sh",
        "t.sh",
    )
    waiting = box.start(*words, SECRET)
    until(lambda: waiters(box.environ))
    assert [each.command for each in waiters(box.environ)] == ["sh t.sh"]
    assert SECRET.encode() not in shared(box)
    waiting.kill()
    assert SECRET.encode() not in shared(box)


def test_a_job_in_line_shows_none_of_its_words_to_others_and_still_runs_with_them(box: Box) -> None:
    other = box.hold(*range(8))
    # The starter's own words are not on a command line: the starter is a fork of the test.
    words = ("run", "-q", "--detach", "--wait", "--window", "0", "-n", "1", "--env", f"KEY={SECRET}", "--")
    starter = box.start(
        *words, f"TOKEN={SECRET}", "env", f"HF_TOKEN={SECRET}", "sh", "-c", 'echo "$KEY $TOKEN $HF_TOKEN"'
    )
    assert starter.end() == 0, starter.err
    (job,) = all_jobs(box.environ)
    until(lambda: waiters(box.environ))
    assert job.command is not None
    assert b"gputui" in Path(f"/proc/{job.command.pid}/cmdline").read_bytes(), "it waits"
    assert SECRET.encode() not in seen_in_ps()
    assert SECRET.encode() not in shared(box)
    assert not (job.folder / WORDS).exists(), "what has been read is removed"
    assert job.line.startswith("gputui run -n 1 ") and "--wait" in job.line, "its owner sees what it will do"
    assert all(file.stat().st_mode & 0o077 == 0 for file in job.folder.iterdir())
    other.kill()
    assert ended(job).status == 0
    assert job.log.read_text().endswith(f"{SECRET} {SECRET} {SECRET}\n")


# at the end


def records(box: Box) -> list[bytes]:
    return [file.read_bytes() for file in box.claims_folder.glob("*.claim")]


def test_a_record_is_gone_when_the_lease_is_given_back(box: Box, lease: Take) -> None:
    held = lease(box, 0, 1)
    assert all(records(box)) and len(records(box)) == 2
    held.release()
    assert records(box) == []


def test_a_record_is_gone_when_a_job_has_ended(box: Box) -> None:
    assert box.call("run", "-q", "--detach", "-n", "2", "--", "true")[0] == 0
    (job,) = all_jobs(box.environ)
    ended(job)
    assert records(box) == []


def test_a_record_is_gone_when_a_job_that_waited_has_ended(box: Box) -> None:
    assert box.call("run", "-q", "--detach", "--wait", "--window", "0", "-n", "1", "--", "true")[0] == 0
    (job,) = all_jobs(box.environ)
    assert ended(job).status == 0
    assert records(box) == []


def test_a_record_is_gone_whatever_directory_the_command_goes_to(box: Box) -> None:
    """The path of the folder of claims may be relative to the directory in which gputui is started."""
    environ = {"GPUTUI_CLAIMS": os.path.relpath(box.claims_folder)}
    assert box.call("run", "-q", "--detach", "-n", "1", "--", "true", **environ)[0] == 0
    (job,) = all_jobs(box.environ)
    ended(job)
    assert records(box) == []
    words = ("run", "-q", "-n", "1", "--directory", "/", "--", "no-such-program")
    assert box.call(*words, **environ)[0] == 127
    assert records(box) == []


def test_a_record_stays_while_a_process_that_the_job_left_behind_holds_it(box: Box) -> None:
    words = ("run", "-q", "--detach", "-n", "1", "--", "sh", "-c", "sleep 1000 & echo $!")
    assert box.call(*words)[0] == 0
    (job,) = all_jobs(box.environ)
    ended(job)
    try:
        (claim,) = box.claims()
        assert (claim.command, claim.job) == ("sh", job.id)
    finally:
        os.kill(int(job.log.read_text()), 9)


def test_what_a_killed_command_left_is_removed_by_the_next_look(box: Box) -> None:
    """gputui had become the command: no process was left to remove it."""
    box.hold(3).kill()
    assert all(records(box))
    box.make_folder()
    assert box.claims() == ()
    assert records(box) == []


def test_a_file_of_ours_that_another_user_linked_there_is_left_alone(box: Box) -> None:
    box.hold(3).kill()
    (record,) = box.claims_folder.glob("*.claim")
    precious = box.folder / "precious"
    precious.write_text("mine")
    record.unlink()
    os.link(precious, record)
    box.claims()
    record.unlink()
    record.symlink_to(precious)
    box.claims()
    assert precious.read_text() == "mine"


def test_a_record_that_another_user_linked_to_a_second_name_is_emptied(box: Box) -> None:
    """Another user can do so where the system permits such links: fs.protected_hardlinks."""
    box.hold(3).kill()
    (record,) = box.claims_folder.glob("*.claim")
    os.link(record, box.folder / "kept")
    box.claims()
    assert (box.folder / "kept").read_bytes() == b"" and records(box) == []
