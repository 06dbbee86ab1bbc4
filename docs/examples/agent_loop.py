"""Finds a plan, starts a job, follows it and stops it: by the library and by `--json` alone.

python agent_loop.py 1B 0.2 python train.py    (until a number at the end of its last line is below 0.2)
"""

import json
import re
import subprocess
import sys
import time

from gputui import launch


def gputui(*words: str) -> dict:
    call = [sys.executable, "-m", "gputui", *words, "--json"]
    told = json.loads(subprocess.run(call, capture_output=True, check=False).stdout)
    return told if "error" not in told else sys.exit("{code}: {message} ({remedy})".format(**told["error"]))


size, enough, *command = sys.argv[1:]
plans = [each for each in gputui("plan", "--parameters", size)["strategies"] if each["fits"]]
number = plans[0]["devices"] if plans else sys.exit(f"{size} does not fit on the GPUs that are free")
# If somebody was quicker, it waits in line, behind those who came before.
job = launch(command, number, detach=True, time="1h", wait=600).id
while gputui("jobs", "show", job)["job"]["state"] == "running":
    last = "".join(gputui("jobs", "log", job, "-n", "1")["lines"])
    print(job, last, flush=True)
    figure = re.search(r"\d+(\.\d+)?(e-?\d+)?$", last)
    if figure and float(figure[0]) < float(enough):
        gputui("jobs", "stop", job)
    time.sleep(1)
print("job", job, gputui("jobs", "show", job)["job"]["state"])
