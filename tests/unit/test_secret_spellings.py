"""Spellings of secrets, which no file keeps, and of harmless words, which every file keeps.

A new spelling is a line here and a row in `gputui.launching.secret_table`.
"""

from __future__ import annotations

import re
import shlex

import pytest

from fuzz.bounds import assert_costs, cpu_seconds
from gputui.allocating.queue import waiters
from gputui.jobs.store import all_jobs
from gputui.launching.history import KeepError, with_launch
from gputui.launching.launch_options import LaunchOptions
from gputui.launching.secret_table import token_name
from gputui.launching.secrets import MARK, is_secret, without_secrets
from table_tests import each_row
from unit.claims_support import Box, until
from unit.jobs_support import ended

THOUGHT_OF = "hunter2"
"""A password that only its place gives away."""
HEXADECIMAL = "9f8e7d6c5b4a39281706f5e4d3c2b1a098765432"
"""A key of the form of Weights & Biases."""
BASE_64 = "q7Rt2Lw9Zx4Kc8Vn3Bm6Ya"
CAPITALS = "Q7RT2LW5ZX4KC6VN"
SHORT = {"@R": HEXADECIMAL, "@B": BASE_64, "@A": CAPITALS, "@D": "1a2B"}
NUMBERS = ("8080:80", "80:80", "3306:3306", "7654321")
"""Passwords, some of which look like ports."""
ALL = (THOUGHT_OF, HEXADECIMAL[:32], BASE_64, CAPITALS, *NUMBERS)


def words_of(line: str) -> tuple[str, ...]:
    return tuple(shlex.split(re.sub("@[RBAD]", lambda match: SHORT[match[0]], line)))


def kept_of(text: str) -> list[str]:
    """The secrets that a text contains."""
    return [secret for secret in ALL if secret in text]


SECRET = [
    "python t.py --pswd hunter2",
    "python t.py --passw=hunter2",
    "python t.py --github-pat hunter2",
    "python t.py --fernet_key hunter2",
    "python t.py --my_token hunter2",
    "python t.py --hub_token swordfish@B",
    "python t.py --jupyter_token hunter2",
    "X_PW=hunter2 python t.py",
    "spark-submit --conf spark.hadoop.fs.azure.account.key.a.dfs.core.windows.net=hunter2 t.py",
    "git config user.password hunter2",
    "dvc remote modify r secret_access_key hunter2",
    "pip config set global.password hunter2",
    "mpiexec -genv HF_TOKEN hunter2 python t.py",
    "mpirun -env WANDB_API_KEY hunter2 -n 2 python t.py",
    "vault login hunter2",
    "swanlab login -k hunter2",
    "mosquitto_pub -u me -P hunter2 -t x",
    "etcdctl --user root:hunter2 get x",
    "bash -c 'echo \"machine api.wandb.ai login user password hunter2\" >> ~/.netrc'",
    "helm upgrade --set 'env[0].name=HF_TOKEN,env[0].value=hunter2' x",
    'aws batch submit-job --container-overrides \'{"environment":[{"name":"HF_TOKEN","value":"hunter2"}]}\'',
    "bash -c 'HF_TOKEN=$HF_TOKEN python t.py --token hunter2'",
    "bash -c 'HF_TOKEN=$X-hunter2 python t.py'",
    "python t.py --pass-phrase hunter2",
    "pwsh -c '$env:HF_TOKEN = \"hunter2\"; x'",
    "python t.py --enc-key hunter2",
    "java -Dapi.key=hunter2 -jar x",
    "rclone config create r s3 secret_access_key hunter2",
    "tmux setenv HF_TOKEN hunter2",
    "fish -c 'set --export HF_TOKEN hunter2; x'",
    "bash -c 'export API_KEY=`echo hunter2`; python t.py'",
    "bash -c 'HF_TOKEN+=hunter2 torchrun t.py'",
    "bash -c 'ARGS=\"--token hunter2\"; torchrun t.py $ARGS'",
    "env 'ARGS=--lr 1 --hub_token hunter2' python t.py",
    "python t.py 'wandb[\"api_key\"]=hunter2'",
    "python t.py --override '[wandb][api_key]=hunter2'",
    "python -c \"api_key: str = 'hunter2'\"",
    "python -c \"x = dict(password =   'hunter2')\"",
    "python t.py wandb.key=@R",
    "python t.py +wandb.key=@R",
    "python t.py --wandb-key hunter2",
    "python t.py --wandb.key=@R",
    "python t.py --pass hunter2",
    "python t.py --pass=hunter2",
    "python t.py --pwd hunter2",
    "python t.py --pwd=hunter2",
    "python t.py --pw hunter2",
    "python t.py --userpass hunter2",
    "python t.py 'https://acc.blob.core.windows.net/c?sv=2022-11-02&sr=c&sig=@B%2Bab%3D'",
    "python t.py --sas '?sv=2022&sig=@B%3D'",
    "python t.py 'https://b.s3.amazonaws.com/k?X-Amz-Credential=AK%2F2&X-Amz-Signature=@R'",
    "python t.py 'https://storage.googleapis.com/k?X-Goog-Signature=@R'",
    "python t.py 'https://hooks.slack.com/services/T00000000/B00000000/@B'",
    "python t.py 'https://discord.com/api/webhooks/123456789012345678/@B'",
    "python t.py 'https://api.x/v1?key=@B'",
    "python t.py 'https://api.x/v1?apikey=hunter2'",
    "python t.py 'https://api.x/v1?access_token=hunter2&x=1'",
    "curl -u me:8080:80 h",
    "docker run curlimages/curl -u me:80:80 h",
    "docker exec db mysql -p3306:3306 db",
    "curl --cookie 'session=hunter2' h",
    "curl -b 'session=hunter2' h",
    "curl -H 'Cookie: sid=hunter2' h",
    "curl '-HX-Api-Key: hunter2' h",
    "curl '--header=X-Api-Key: hun/ter2;hunter2' h",
    "curl -x me:hunter2@proxy:80 h",
    "curl --proxy me:hunter2@proxy:80 h",
    "curl --cert c.pem:hunter2 h",
    "curl --oauth2-bearer hunter2 h",
    'curl -d \'{"password":"hunter2"}\' h',
    "curl -d 'user=me&password=hunter2' h",
    "wget --http-password=hunter2 h",
    "wget --header='Authorization: Basic hunter2hunter2' h",
    "WANDB_KEY=@R python t.py",
    "WANDBKEY=@R python t.py",
    "env HFTOKEN=hunter2 python t.py",
    "env hf_token=hunter2 python t.py",
    "env hfToken=hunter2 python t.py",
    "env PGPASSWORD=hunter2 python t.py",
    "env SSHPASS=hunter2 python t.py",
    "env REDISCLI_AUTH=hunter2 python t.py",
    "env MYSQL_PWD=hunter2 python t.py",
    "env DB_PASS=hunter2 python t.py",
    "env API_KEY_2=hunter2 python t.py",
    "env GH_PAT=hunter2 python t.py",
    "env AZURE_STORAGE_SAS=@B python t.py",
    "env SAS_TOKEN=hunter2 python t.py",
    "python t.py api_key2=hunter2",
    "python t.py --api.key hunter2",
    "python t.py --api_key_prod hunter2",
    "python t.py --APIKey hunter2",
    "python t.py --hfAPIKey=hunter2",
    "python t.py --HFToken hunter2",
    "python t.py --OpenAIKey hunter2",
    "python t.py --API-KEY hunter2",
    "python t.py --TOKEN hunter2",
    "python t.py -token hunter2",
    "python t.py -password=hunter2",
    "python t.py --password1 hunter2",
    "python t.py --passcode hunter2",
    "python t.py --key @B",
    "python t.py --key=@R",
    "python t.py key=@R",
    "python t.py --license-key hunter2",
    "python t.py --api-keys hunter2,hunter2",
    "python t.py --access-tokens hunter2",
    "python t.py --secrets hunter2",
    "python t.py --secret-string hunter2",
    "python t.py --token-value hunter2",
    "python t.py --password-text hunter2",
    "python t.py --ssh-pass hunter2",
    "python t.py 'loggers[0].token=hunter2'",
    "python t.py db/password=hunter2",
    "python t.py '+db@src.password=hunter2'",
    "python t.py '++hub={token:hun,api_key:hunter2}'",
    'python t.py \'{"password": 7654321, "x": "a"}\'',
    'python t.py \'{"api_key":"hunter2"}\'',
    "python t.py \"{'api_key': 'hunter2'}\"",
    'python t.py \'{\\"token\\":\\"hunter2\\"}\'',
    "python t.py 'api_key: \"hunter2\"'",
    'python t.py \'"pwd": "hunter2"\'',
    "python t.py 'DRIVER={x};UID=me;PWD=hunter2'",
    "python t.py 'AccountName=a;AccountKey=hunter2==;E=c'",
    "python t.py 'Endpoint=sb://x/;SharedAccessKey=hunter2='",
    "python t.py postgresql://me:p@ss:hunter2@h/db",
    "python t.py redis://:hunter2@h:1/0",
    "python t.py 'mongodb+srv://me:hunter2@h/db'",
    "python t.py 's3://AKIAIOSFODNN7EXAMPLE:hunter2@b/x'",
    "bash -c 'set -x HF_TOKEN hunter2; x'",
    "fish -c 'set -gx HF_TOKEN hunter2; x'",
    "csh -c 'setenv HF_TOKEN hunter2; x'",
    "pwsh -c '$env:HF_TOKEN=\"hunter2\"; x'",
    "bash -c 'HF_TOKEN=\"hunter2\" x'",
    "bash -c \"export HF_TOKEN='hunter2'\"",
    "bash -c 'python t.py --token=\"hunter2\"'",
    "bash -c 'python t.py --password hunter2'",
    "bash -c 'python t.py --pass hunter2'",
    "bash -c 'read -r HF_TOKEN <<< hunter2'",
    "openssl enc -pass pass:hunter2",
    "openssl enc -k hunter2",
    "zip -P hunter2 a.zip x",
    "unzip -P hunter2 a.zip",
    "7z x -phunter2 a.7z",
    "ssh-keygen -N hunter2 -f k",
    "ldapsearch -w hunter2",
    "lftp -u me,hunter2 h",
    "smbclient -U me%hunter2 //h/s",
    "kubectl create secret generic x --from-literal=key=hunter2",
    "kubectl config set-credentials x --token=hunter2",
    "docker build --build-arg HF_TOKEN=hunter2 .",
    "docker run -eHF_TOKEN=hunter2 i",
    "docker run --env=HF_TOKEN=hunter2 i",
    "apptainer exec --env HF_TOKEN=hunter2 i",
    "git -c http.extraheader='AUTHORIZATION: basic hunter2hunter2' clone x",
    "huggingface-cli login --token=hunter2",
    "kaggle --password hunter2",
    "rclone --sftp-pass hunter2 ls x",
    "gpg --passphrase hunter2 -d f",
    "sqlcmd -P hunter2",
    "sbatch --export=ALL,HF_TOKEN=hunter2 j.sh",
    "mpirun -x HF_TOKEN=hunter2 python t.py",
    'ray job submit --runtime-env-json \'{"env_vars": {"HF_TOKEN": "hunter2"}}\'',
    "accelerate launch t.py --hub_token hunter2",
    "python t.py --hub_token=hunter2",
    "vllm serve m --api-key hunter2",
    'python -c \'import os; os.environ["HF_TOKEN"]="hunter2"\'',
    'python -c \'import os; os.environ.setdefault("HF_TOKEN", "hunter2")\'',
    'python -c \'import os; os.putenv("HF_TOKEN","hunter2")\'',
    "python t.py glrt-@B",
    "python t.py pplx-@B@B",
    "python t.py dapi9f8e7d6c5b4a39281706f5e4d3c2b1a0",
    "python t.py hvs.@B@B",
    "python t.py SG.@B.@B@B",
    "python t.py wandb_v1_@B@B",
    "python t.py LS0tLS1CRUdJTiBQUklWQVRF@B",
    "python t.py 'tok:hf_@B@B'",
    "python t.py '[\"hf_@B@B\"]'",
    "python t.py -thf_@B@B",
    "python t.py api_org_@B",
    "python t.py sk-proj-@B",
    "python t.py sk-ant-api03-@B",
    "python t.py sk-@B",
    "python t.py sk_live_@B",
    "python t.py gsk_@B",
    "python t.py xai-@B",
    "python t.py nvapi-@B",
    "python t.py r8_@B",
    "python t.py tgp_v1_@B",
    "python t.py pcsk_2Abc9_@B@B",
    "python t.py rpa_@A@D@A",
    "python t.py tvly-dev-@B",
    "python t.py fw_@B",
    "python t.py ATATT3xFfGF0@B-@B=1A2B3C4D",
    "python t.py 123456789:AAF@B1234567890",
    "python t.py npm_@B",
    "python t.py pypi-AgEIcHlwaS5vcmc@B",
    "python t.py rubygems_@R",
    "python t.py dckr_pat_@B",
    "python t.py dckr_oat_@B",
    "python t.py gho_@B",
    "python t.py ghs_@B",
    "python t.py github_pat_@B_@B",
    "python t.py glpat-@B",
    "python t.py gldt-@B",
    "python t.py xoxb-123456789012-1234567890123-@B",
    "python t.py xapp-1-A0123456789-123-@R",
    "python t.py AKIA@A",
    "python t.py --id=ASIA@A",
    "python t.py ABSK@B@B",
    "python t.py LTAI@A@D",
    "python t.py AIza@B12345678901",
    "python t.py ya29.@B",
    "python t.py GOCSPX-@B",
    "python t.py dop_v1_@R",
    "python t.py glsa_@B_12345678",
    "python t.py hvb.@B",
    "python t.py ntn_@B",
    "python t.py lin_api_@B",
    "python t.py pul-@R",
    "python t.py PMAK-@R",
    "python t.py shpat_@R",
    "python t.py sq0atp-@B",
    "python t.py sntryu_@R",
    "python t.py AGE-SECRET-KEY-1@A@A",
    "python t.py eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.@B",
    "python t.py eyJrIjoi@B",
    "python t.py abc8Q~@B1234567890",
    "python t.py https://api.telegram.org/bot123456789:AAF@B1234567890/send",
    "python t.py https://x.webhook.office.com/webhookb2/@B",
    "python t.py '-----BEGIN OPENSSH PRIVATE KEY-----\n@B'",
    "bash -c 'python t.py \"tok:hf_@B\"'",
    "python t.py --auth me:hunter2",
    "python t.py --gradio-auth me:hunter2",
    "python t.py --db.pass=hunter2",
    'python t.py \'["--token", "hunter2"]\'',
    'python t.py --trainer.logger=\'{"wandb":{"api_key":"hunter2"}}\'',
    "bash -c 'bash -c \"python t.py --pass hunter2\"'",
    "bash -c 'read HF_TOKEN <<<hunter2'",
    "TOKEN=hunter2 python t.py",
    "python t.py --PassWord=hunter2",
    "python t.py --passWD=hunter2",
    "python t.py --kv 'auth_token = hunter2'",
    "python t.py --kv 'auth_token : hunter2'",
    "python t.py --kv 'auth_token := hunter2'",
    "python t.py --kv 'auth_token => hunter2'",
    "bash -c 'cat > c.ini <<EOF\n[a]\npassword = hunter2\nEOF\n'",
    "python t.py 'lr = 1\npassword = hunter2\nseed = 2'",
    "python -c \"os.environ['HF_TOKEN'] = r'hunter2'\"",
    "python -c \"os.environ['HF_TOKEN'] = f'hunter2'\"",
    "python -c \"os.environb[b'HF_TOKEN'] = b'hunter2'\"",
    "python -c \"os.environ.setdefault('HF_TOKEN', '''hunter2''')\"",
    "python -c \"os.environ['HF_TOKEN'] = '\\x5ahunter2'\"",
    "python -c \"token = ('hunter2')\"",
    "python -c \"(token := 'hunter2')\"",
    "python -c \"token = os.getenv('TOKEN', 'hunter2')\"",
    "python -c \"token = os.getenv('TOKEN', r'hunter2')\"",
    'python t.py \'{"auth_token": ["hunter2"]}\'',
    'python t.py \'{"auth_token": [["a"], ["hunter2"]]}\'',
    'python t.py \'{"auth_token": {"value": "hunter2"}}\'',
    'python t.py \'{"name": "auth_token", "value": "hunter2"}\'',
    'python t.py \'{"value": "hunter2", "name": "auth_token"}\'',
    'python t.py \'{"key": "auth_token", "value": "hunter2"}\'',
    "python t.py 'auth_token: |\n  hunter2\n'",
    "python t.py 'auth_token: |-\n  abc\n  hunter2\nlr: 1\n'",
    "python t.py 'auth_token: !!str \"hunter2\"'",
    "python t.py '<password>hunter2</password>'",
    "python t.py --x=%7B%22token%22%3A%22hunter2%22%7D",
    "python t.py --set hf_token hunter2",
    "python t.py -o hf_token hunter2",
    "python t.py --env HF_TOKEN hunter2",
    "bash -c 'printf -v HF_TOKEN %s hunter2'",
    "csh -c 'set token = hunter2'",
    "python t.py --hf-tokens hunter2 hunter2",
    "python t.py --passwords @A hunter2 --lr 1",
]


def test_a_secret_is_marked_and_the_words_without_one_stay() -> None:
    for line in SECRET:
        words = words_of(line)
        found, names = without_secrets(words)
        assert names and MARK in " ".join(found), line
        assert not kept_of("\n".join(found)), line
        assert len(found) == len(words)
        others = [place for place, word in enumerate(words) if not kept_of(word)]
        assert others and [found[place] for place in others] == [words[place] for place in others]
        assert without_secrets(found)[0] == found, "what has been marked stays"


def test_so_it_is_within_the_text_of_a_shell() -> None:
    for line in SECRET:
        text = shlex.join(words_of(line))
        assert not kept_of(without_secrets(("sh", "-c", f"cd x && {text}"))[0][2]), line


HARMLESS = [
    # a substitution of the shell shows the place of a secret, and not its text
    "bash -c 'HF_TOKEN=$HF_TOKEN python t.py --hub_token \"$HF_TOKEN\" --wandb-key=${WANDB_API_KEY:?}'",
    "bash -c 'export HF_TOKEN=\"${HF_TOKEN:-}\"; python t.py --token $(cat ~/.hf) --max_tokens 5'",
    "bash -c 'HF_TOKEN=$(cat ~/.hf) python t.py'",
    "bash -c 'curl -H \"Authorization: Bearer $HF_TOKEN\" -u me:$DB_PASS h; wandb login $WANDB_API_KEY'",
    # tokens of a text
    "deepspeed main.py --end_of_conversation_token EOT --add_eot_token",
    "python t.py --vision_feature_select_token cls --img_context_token '<IMG_CONTEXT>' --soi_token SOI",
    "python t.py --word_delimiter_token='|' --unk_token='[UNK]' --lang_token en --task_token transcribe",
    "python t.py --reward_token good --pooling_token=cls --no_timestamps_token 5",
    "git config user.name ana; git -c user.name=token commit",
    "mpiexec -genv NCCL_DEBUG INFO -env OMP_NUM_THREADS 8 python t.py --add_special_tokens x",
    'python t.py \'[{"name": "token", "value": "<pad>"}, {"name": "lr", "value": "1e-4"}]\'',
    "python t.py --tokenizer gpt2 --tokenizer_name_or_path meta-llama/Llama-3.1-8B",
    "python t.py --tokenizer-mode auto --skip-tokenizer-init",
    "python t.py --max_tokens 512 --max-num-batched-tokens=8192",
    "python t.py --max_new_tokens=256 --num_tokens 1000000",
    "python t.py --train_tokens 300B --tokens-per-batch 4096",
    "python t.py --key_size 64 --num_key_value_heads 8",
    "python t.py --sort_key loss --group-key speaker",
    "python t.py --pass_k 10 --pass@k 1",
    "python t.py --num-passes 3 --passes 2",
    "python t.py sigma=0.5 --sigma 1.0 --sig 0.05",
    "python t.py monkey=banana --hotkey F5",
    "ffmpeg -i a -pass 1 -passlogfile x b",
    "apptainer exec --pwd /workspace --nv i.sif python t.py",
    "docker run --workdir /w -e PWD=/w image",
    "env PWD=/data OLDPWD=/home/ana python t.py",
    "python t.py --use_auth_token True --use_auth_token=false",
    "python t.py --token true",
    "python t.py --pad_token '<pad>' --eos_token='</s>' --bos-token '<s>'",
    "python t.py --mask_token '[MASK]' --image-token '<image>'",
    "python t.py --placeholder_token '<cat-toy>' --initializer_token toy",
    "python t.py --pad_token_id 0 --eos-token-id 2",
    "python t.py --image_token_index 32000",
    "python t.py --decoder_start_token_id 0 --forced_bos_token de_DE",
    "python t.py --token_dropout 0.1 --token-type-ids x",
    "python t.py --push_to_hub --hub_model_id ana/m --hub_strategy every_save",
    "python t.py --hub_private_repo true",
    "python t.py --wandb_project keys --wandb-entity secretlab",
    "python t.py --report_to wandb --run_name secret-sauce",
    "python t.py --label_names key value --text_column token",
    "python t.py --input_key prompt --output-key response --reward_key score",
    "python t.py --query_key_value_bias --qk_norm --key-dim 128",
    "python t.py --kv_key_cache fp8 --cross_attn_key k",
    "python t.py --keys a,b,c --image_key image --lidar_key pts",
    "python t.py --prompt_key instruction --apply_chat_template",
    "torchrun --rdzv_id 100 --rdzv_conf join_timeout=600 t.py",
    "torchrun --master_addr 10.0.0.1 --master_port 29500 t.py",
    "deepspeed --hostfile h --master_port 29500 t.py --deepspeed ds.json",
    'deepspeed t.py --deepspeed_config \'{"bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}\'',
    "accelerate launch --mixed_precision bf16 --main_process_port 0 t.py",
    "vllm serve m --max-model-len 8192 --tokenizer-pool-size 2 --enable-auto-tool-choice",
    "vllm serve m --served-model-name secretary --guided-decoding-backend auto",
    "vllm serve m --tensor-parallel-size 2 --speculative-config '{\"num_speculative_tokens\": 5}'",
    "vllm serve m --ssl-keyfile /etc/k.pem --ssl-certfile /etc/c.pem",
    "python t.py --first_pass 3 --two_pass true --forward-pass fused --compass north --bypass x",
    "python t.py --author ana --authors a,b --authority x",
    "python t.py --signal SIGUSR1 --signature default --sigmoid",
    "python t.py --path a/pat --pattern 'x.*' --patience 3 --patch_size 16",
    "python t.py --session train1 --session_id 7 --code python --code-eval humaneval",
    "python t.py --login shell --cookies cookies.txt",
    "python t.py --checkpoint runs/2026-11-25/epoch10_step5000.safetensors",
    "python t.py --revision 9f8e7d6c5b4a39281706f5e4d3c2b1a098765432",
    "python t.py --commit=9f8e7d6c5b4a39281706f5e4d3c2b1a098765432 --md5 9f8e7d6c5b4a39281706f5e4d3c2b1a0",
    "python t.py hf_llama_checkpoint_directory sk-learn-experiments-baseline pk_table_of_customers_2024",
    "python t.py --model hf_model_with_a_long_name_2 --name npm_package_of_mine",
    "python t.py --model ana/Qwen2.5-7B-Instruct-GPTQ-Int4 --dataset HuggingFaceH4/ultrachat_200k",
    "python t.py --seed 1234567890123456789012345678901234567890",
    "python t.py optimizer.lr=3e-4 +trainer.max_epochs=3 ++model.key_dim=64 model.num_key=2",
    "python t.py hydra.run.dir=out/key/token experiment=secret_sharing/a",
    "python t.py data.keys='[image,label]' data.key=image",
    "python t.py --password_file /run/p --token-path ~/.t --api-key-env OPENAI_API_KEY --secret-name s",
    "env HF_TOKEN_PATH=/home/a/.t SSH_KEY_FILE=/k API_KEY_TIMEOUT=3 python t.py",
    "env TOKENIZERS_PARALLELISM=false MAX_TOKENS=5 NUM_PASSES=2 python t.py",
    "env PAD_TOKEN='<pad>' EOS_TOKEN_ID=2 MONKEY=x KEYBOARD=us python t.py",
    "env GIT_ASKPASS=/usr/bin/x COMPASS=n BYPASS=1 PATH=/bin PYTHONPATH=/x python t.py",
    "env NCCL_DEBUG=INFO CUDA_VISIBLE_DEVICES=0,1 OMP_NUM_THREADS=8 MASTER_PORT=29500 python t.py",
    "env PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python t.py",
    "docker run --gpus all -p 8080:80 --name key --user 1000:1000 -v /a:/b:ro nvcr.io/nvidia/pytorch:25",
    "docker run image:tag@sha256:9f8e7d6c5b4a39281706f5e4d3c2b1a09f8e7d6c5b4a39281706f5e4d3c2b1a0",
    "docker run -e HF_TOKEN image",
    "docker run --env HF_TOKEN image",
    "mpirun -x HF_TOKEN python t.py",
    "pip install git+ssh://git@host/x git+https://host/x@v1.0#egg=x",
    "ssh -p 22 ana@host:22 python t.py",
    "rsync -a x ana@host:/data/out",
    "scp ana@10.0.0.1:~/x .",
    "python t.py --url http://localhost:8000/v1 --endpoint tcp://10.0.0.1:29500",
    "python t.py 'https://host/x?key=image&page=2&code=python'",
    "python t.py 'http://host:80/a@b:443'",
    "python -c 'for key, token in d.items(): print(key, token)'",
    'python -c \'f(key="loss", sort_key="acc"); x = d["key"]\'',
    "bash -c 'for key in a b; do echo $key; done'",
    "bash -c 'set -x; set -e; python t.py --max_tokens 5'",
    "bash -c 'set -euo pipefail; python t.py'",
    "bash -c 'python t.py --tokenizer gpt2 | tee log'",
    'python t.py \'{"text_key": "x", "keys": ["image", "label"], "tokenizer": "gpt2"}\'',
    'python t.py \'{"pad_token": "<pad>", "eos_token_id": 2, "max_tokens": 512}\'',
    "python t.py 'schedule: [warmup: 100, cosine: 200000]'",
    "python t.py 'labels: {token: O, key: B-LOC}'",
    "7z a -p x",
    "openssl enc -pass file:/run/p",
    "curl -b cookies.txt h",
    "curl -x http://proxy:3128 -E cert.pem h",
    "kubectl create secret generic x --from-file=k",
    "python t.py --hub_token_env HF_TOKEN --wandb-key-path ~/.k",
    "python t.py --group_by_length --auto_find_batch_size --lr_scheduler_type cosine",
    "python t.py --target_modules q_proj,k_proj,v_proj --modules_to_save embed_tokens,lm_head",
    "python t.py --embed_tokens 1 --special_tokens_map m.json --add_special_tokens",
    "python t.py --reset_position_ids --vocab_extra_ids 100 --make_vocab_size_divisible_by 128",
    "python t.py --data.token_budget 4000 --min_tokens 10 --token_level loss",
    "python t.py --set lr 1 --env OMP_NUM_THREADS 8 --opts optimizer adam",
    "python -c 'token = read_token(); key = load()'",
    "python -c 'if token == eos: stop()'",
    'python t.py \'{"name": "key", "value": 5}\' \'<token></token>\'',
    "python t.py --jwt_algorithm HS256 --auth_type none --auth none --basic_auth false",
]


def test_harmless_words_stay() -> None:
    for line in HARMLESS:
        words = words_of(line)
        assert without_secrets(words) == (words, ())
        assert without_secrets(("sh", "-c", line)) == (("sh", "-c", line), ())


REMAINS = [
    "bash -c 'echo hunter2 | huggingface-cli login'",
    "python t.py hunter2",
    "python t.py --key hunter2",
    "python t.py key=hunter2",
    "python t.py -p hunter2 -u me:hunter2",
    'python -c \'login("hunter2", key="hunter2")\'',
    "python t.py https://hunter2@h/x",
    "docker run mysql mysql -p3306:3306",
    "python t.py --pwd /hunter2 --pass 12",
    "python t.py --my_token swordfish",
    "python t.py @R",
]
"""Secrets that nothing gives away; docs/security.md says so."""


@each_row("line", REMAINS)
def test_what_the_table_cannot_know_stays(line: str) -> None:
    assert without_secrets(words_of(line))[1] == ()


def test_a_launch_with_a_secret_is_not_remembered() -> None:
    for line in SECRET:
        with pytest.raises(KeepError):
            with_launch((), LaunchOptions(words_of(line)), 1, 1.0)


@each_row(
    ("name", "value", "secret"),
    [
        ("HF_TOKEN", THOUGHT_OF, True),
        ("hf_token", THOUGHT_OF, True),
        ("WANDB_KEY", THOUGHT_OF, True),
        ("KEY", THOUGHT_OF, True),
        ("MYSQL_PWD", THOUGHT_OF, True),
        ("REDISCLI_AUTH", THOUGHT_OF, True),
        ("GH_PAT", THOUGHT_OF, True),
        ("ANYTHING", f"hf_{BASE_64}", True),
        ("HTTPS_PROXY", f"http://me:{THOUGHT_OF}@proxy:3128", True),
        ("EXTRA_ARGS", f"--lr 1 --token {THOUGHT_OF}", True),
        ("CONNECTION", f"Server=h;Pwd={THOUGHT_OF}", True),
        ("HEADERS", f'{{"Authorization": "Bearer {THOUGHT_OF}"}}', True),
        ("HF_TOKEN", "", False),
        ("PWD", "/data", False),
        ("HF_TOKEN_PATH", "/home/ana/.token", False),
        ("TOKENIZERS_PARALLELISM", "false", False),
        ("HTTPS_PROXY", "http://proxy:3128", False),
        ("MONKEY", "banana", False),
        ("NUM_PASSES", "3", False),
        ("LS_COLORS", "*.key=01;31:*.pass=01;31", False),
    ],
)
def test_a_variable_is_judged_by_the_same_table(name: str, value: str, secret: bool) -> None:
    assert is_secret(name, value) == secret


@each_row(
    ("token", "owner"),
    [("hf_x", "Hugging Face"), ("ghp_x", "GitHub"), ("glpat-x", "GitLab"), ("AKIA", "AWS")],
)
def test_a_token_is_said_to_be_its_publishers(token: str, owner: str) -> None:
    assert owner in token_name(token)


# places that keep words

WORDS = words_of(
    "wandb.key=@R +wandb.key=@R --pass hunter2 --pwd=hunter2 --hub-token hunter2 db/password=hunter2"
    " --hfAPIKey=hunter2 API_KEY_2=hunter2 'https://h/c?sv=2022&sig=@B%2Bab%3D' https://me:hunter2@h/x"
    " hf_@B -thf_@B glpat-@B 'X-Api-Key: hunter2'"
    " 'password: hunter2' 'PWD=hunter2;UID=me' 'a --pass hunter2 b'"
    " --auth me:hunter2 AKIA@A 'Authorization: Bearer hunter2hunter2' --key @R --lr 3e-4"
)


FOREGROUND = ("run", "-q", "-n", "1", "--")


def all_text(box: Box) -> str:
    """Everything that gputui has written, including names of files: records, logs, claims, settings."""
    files = [file for file in box.folder.rglob("*") if file.is_file()]
    return "".join(f"{file}\n{file.read_bytes().decode(errors='replace')}\n" for file in files)


@pytest.mark.parametrize(
    "call",
    [
        ("run", "-q", "--detach", "-n", "1", "--"),
        ("run", "-q", "--detach", "--wait", "--window", "0", "-n", "1", "--"),
        FOREGROUND,
        ("each", "-q", "-n", "1", "--", "env", "A={1,2}"),
        ("compare", "-q", "-n", "1", "--vary", "arg:--seed=1,2", "--"),
    ],
    ids=lambda call: " ".join(call[:4]),
)
def test_no_spelling_is_in_a_file_whatever_has_started_it(box: Box, call: tuple[str, ...]) -> None:
    status, _, err = box.call(*call, "true", *WORDS)
    assert status == 0, err
    for job in all_jobs(box.environ):
        assert ended(job).status == 0
        for shown in (("show", job.id), ("show", "--command", job.id), ("log", job.id), ("--json",)):
            assert not kept_of("".join(box.call("jobs", *shown)[1:]))
    text = all_text(box)
    assert ("3e-4" in text) == (call != FOREGROUND), "the rest is kept"
    assert not kept_of(text)


@pytest.mark.thorough
def test_no_spelling_is_in_a_file_or_in_the_queue_while_a_job_waits(box: Box) -> None:
    other = box.hold(*range(8))
    words = ("run", "-q", "--detach", "--wait", "--window", "0", "-n", "1", "--", "true")
    assert box.start(*words, *WORDS).end() == 0
    until(lambda: waiters(box.environ))
    assert not kept_of(all_text(box))
    for call in (("queue",), ("queue", "--json"), ("jobs", "--json"), ("claims", "--json")):
        assert not kept_of("".join(box.call(*call)[1:]))
    other.kill()
    (job,) = all_jobs(box.environ)
    assert ended(job).status == 0
    assert not kept_of(all_text(box))


@each_row("word", ["--x" + "1" * 150 + "x=a", "x" + "_1" * 60 + "x: abcdef", "x" + "_text" * 30 + "x=a"])
def test_a_name_of_many_suffixes_is_judged_at_once(word: str) -> None:
    words = ("python", "t.py", word)
    assert without_secrets(words) == (words, ())
    assert_costs(0.1, lambda: cpu_seconds(lambda: without_secrets(words)))


@pytest.mark.thorough
@each_row(
    "part",
    ["token = [", "token = '", "token: |\n  x\n", "value: ", "<token>", '"key": {', "a%22token%22%3A%22"],
)
def test_the_time_for_a_long_word_grows_with_its_length_alone(part: str) -> None:
    def seconds(length: int) -> float:
        words = ("python", "t.py", part * (length // len(part)))
        return cpu_seconds(lambda: without_secrets(words))

    assert min(seconds(16_000) for _ in range(3)) < 6 * min(seconds(4_000) for _ in range(3)) + 0.05
