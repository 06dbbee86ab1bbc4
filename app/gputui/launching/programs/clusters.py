"""Programs that pass commands to others, which start them: Ray, Slurm, ssh, xargs."""

from __future__ import annotations

from gputui.launching.argument_vector import OptionTable
from gputui.launching.programs.program import Program, Size

SRUN = OptionTable(
    flags="contiguous disable-status|X exact exclusive external help|h hold|H immediate|I interactive"
    " kill-on-bad-exit|K label|l multi-prog nice no-allocate|Z no-kill|k no-requeue no-shell overcommit|O"
    " overlap oversubscribe|s parsable preserve-env|E propagate pty quiet|Q quit-on-interrupt reboot requeue"
    " resv-ports spread-job test-only unbuffered|u usage use-min-nodes verbose|v version|V wait-all-nodes"
    " whole bcast compress",
    valued="gpus|G nodes|N ntasks|n cpus-per-task|c partition|p account|A time|t job-name|J output|o error|e"
    " input|i chdir|D nodelist|w exclude|x dependency|d constraint|C licenses|L qos|q distribution|m"
    " ntasks-per-node",
    unlisted="value",
)
"""Options of srun(1) and sbatch(1) of Slurm 22.05 before the command. An optional value is given with "="
only."""

CLUSTERS = (
    Program(
        name="Ray",
        starts=("ray start",),
        sizes=(Size("num-gpus", "processes"),),
        # (By itself it counts NVML's GPUs, at most as many as the list has entries: with MIG instances these
        # are fewer.)
        tells="--num-gpus={count}",
        warning="start returns at once, and the claim ends while Ray keeps using the devices"
        " (--block keeps the claim)",
        warned_without="block",
        source="ray/scripts/scripts.py, ray/_private/accelerators/nvidia_gpu.py, 2.60",
    ),
    Program(
        name="Ray",
        starts=("ray job submit", "ray submit", "ray exec"),
        elsewhere="what it starts runs on the cluster, on devices of the cluster",
        source="ray/dashboard/modules/job/cli.py, 2.60",
    ),
    Program(
        name="Slurm",
        starts=("srun", "salloc"),
        before=SRUN,
        elsewhere="Slurm selects the devices of the job",
        warning="ignores the selected devices: Slurm selects those of the job",
        elsewhere_by="gpus|G|gpus-per-node|gpus-per-task|gpus-per-socket|gres",
        source="srun(1), Slurm 22.05: --gpus",
    ),
    Program(
        name="Slurm",
        starts=("sbatch",),
        before=SRUN,
        elsewhere="Slurm selects the devices of the job",
        source="sbatch(1), Slurm 22.05",
    ),
    Program(
        name="xargs",
        starts=("xargs", "parallel"),
        warning="starts several commands, and each one sees all the selected devices",
        source="xargs(1) of GNU findutils, parallel(1)",
    ),
    Program(
        # (`screen -dm` starts a server of its own, with our variables: it is among the wrappers.)
        name="GNU screen",
        starts=("screen",),
        warning="may ignore the selected devices, where it starts the command in an existing session"
        " (screen -dm does not)",
        source="screen(1): -m",
    ),
    Program(
        name="ssh",
        starts=("ssh", "kubectl exec", "kubectl run"),
        elsewhere="what it starts runs on another machine",
        source="ssh(1): only variables of SendEnv are handed on",
    ),
    Program(
        # (container_command.py parses their `run`.)
        name="a container engine",
        starts=("docker", "podman", "nerdctl"),
        warning="ignores the selected devices: a container does not get the variables (see `gputui export"
        " --as docker`)",
        source="docker(1)",
    ),
    Program(
        name="an environment of its own",
        starts=("tmux", "su", "runuser"),
        warning="ignores the selected devices: it starts the command in an environment of its own",
        source="tmux(1): update-environment; su(1)",
    ),
    Program(
        name="tox",
        starts=("tox",),
        warning="ignores the selected devices: it passes on only the variables in its pass_env",
        source="tox/tox_env/api.py: pass_env",
    ),
)
