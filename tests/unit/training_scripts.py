"""Scripts like those of training repositories, and the commands that they start."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Training:
    """A script and the facts about it that the tests compare.

    starts      the launcher's own words of each command that has some ("…" for words that are not known), and
                the list of visible devices that it gets ("?" for one that is not known, None for none)
    unfollowed  the lines that are named as not to be followed
    """

    text: str
    starts: tuple[tuple[str, str | None], ...]
    arguments: tuple[str, ...] = ()
    environ: dict[str, str] = field(default_factory=dict)
    unfollowed: tuple[int, ...] = ()
    perhaps: bool = False
    shell: str = "bash"


TRAININGS: dict[str, Training] = {
    # Megatron-LM: examples/bert, examples/gpt3.
    "megatron arrays": Training(
        """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1

GPUS_PER_NODE=8
# Change for multinode config
MASTER_ADDR=localhost
NUM_NODES=1
WORLD_SIZE=$(($GPUS_PER_NODE*$NUM_NODES))
CHECKPOINT_PATH=$1 #<Specify path>
VOCAB_FILE=$2 #<Specify path to file>/bert-vocab.json

DISTRIBUTED_ARGS=(
    --nproc_per_node $GPUS_PER_NODE
    --nnodes $NUM_NODES
    --master_addr $MASTER_ADDR
)
MODEL_ARGS=(
    --num-layers 24
    --attention-backend auto # Can use (flash/fused/unfused/local)
    --world $WORLD_SIZE
)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_bert.py \\
    ${MODEL_ARGS[@]} \\
    --save $CHECKPOINT_PATH \\
    --vocab-file $VOCAB_FILE
""",
        (("torchrun --nproc_per_node 8 --nnodes 1 --master_addr localhost", None),),
        ("ckpt", "vocab.txt"),
    ),
    "megatron quoted arguments": Training(
        """#!/bin/bash
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NNODES=${WORLD_SIZE:-"1"}
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES \\
    --master_port ${MASTER_PORT:-6000}
"
DATA_PATH="${DATA:?Missing dataset prefix}"
torchrun $DISTRIBUTED_ARGS pretrain_gpt.py \\
    $GPT_ARGS --data-path $DATA_PATH --distributed-backend nccl
""",
        (("torchrun --nproc_per_node 4 --nnodes 1 --master_port 6000", None),),
        environ={"GPUS_PER_NODE": "4", "DATA": "/data"},
    ),
    "eval of a command with a date in it": Training(
        """#!/bin/bash
set -x
GPUS_PER_NODE=8
current_time=$(date "+%Y.%m.%d_%H.%M.%S")
ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes 1"
options=" \\
    --bf16 \\
    --name run-${current_time}"
run_cmd="torchrun $ARGS pretrain_gpt.py
  ${options}"
echo ${run_cmd}
eval ${run_cmd}
set +x
exit 0
torchrun never.py
""",
        (("torchrun --nproc_per_node 8 --nnodes 1", None),),
    ),
    # DeepSpeedExamples/applications/DeepSpeed-Chat.
    "deepspeed-chat": Training(
        """#!/bin/bash
# DeepSpeed Team
OUTPUT=$1
ZERO_STAGE=$2
if [ "$OUTPUT" == "" ]; then
    OUTPUT=./output
fi
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=0
fi
mkdir -p $OUTPUT

deepspeed --num_gpus 1 main.py --model_name_or_path facebook/opt-350m \\
   --gradient_accumulation_steps 2 --zero_stage $ZERO_STAGE \\
   --deepspeed --output_dir $OUTPUT &> $OUTPUT/training.log
""",
        (("deepspeed --num_gpus 1", None),),
    ),
    "deepspeed on named devices": Training(
        """deepspeed \\
    --include localhost:2,3 \\
    --master_port 29501 \\
    run.py --fp16 \\
    2>&1 | tee log.txt""",
        (("deepspeed --include localhost:2,3 --master_port 29501", None),),
    ),
    # LLaVA: scripts/v1_5/finetune.sh and eval.
    "llava in chunks": Training(
        """#!/bin/bash
gpu_list="${CUDA_VISIBLE_DEVICES:-0}"
IFS=',' read -ra GPULIST <<< "$gpu_list"
CHUNKS=${#GPULIST[@]}
CKPT="llava-v1.5-13b"
for IDX in $(seq 0 $((CHUNKS-1))); do
    CUDA_VISIBLE_DEVICES=${GPULIST[$IDX]} python -m llava.eval.model_vqa_loader \\
        --answers-file ./answers/$CKPT/${CHUNKS}_${IDX}.jsonl \\
        --num-chunks $CHUNKS \\
        --chunk-idx $IDX &
done
wait
output_file=./merge.jsonl
# Clear out the output file if it exists.
> "$output_file"
for IDX in $(seq 0 $((CHUNKS-1))); do
    cat ./answers/${CHUNKS}_${IDX}.jsonl >> "$output_file"
done
""",
        (("python -m llava.eval.model_vqa_loader", "5"), ("python -m llava.eval.model_vqa_loader", "4")),
        environ={"CUDA_VISIBLE_DEVICES": "5,4"},
    ),
    # stanford_alpaca, FastChat: a command of the README in a file.
    "alpaca": Training(
        """torchrun --nproc_per_node=4 --master_port=20001 train.py \\
    --model_name_or_path "meta-llama/Llama-2-7b-hf" \\
    --data_path ./alpaca_data.json \\
    --fsdp "full_shard auto_wrap" \\
    --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer' \\
    --tf32 True
""",
        (("torchrun --nproc_per_node=4 --master_port=20001", None),),
    ),
    # mmdetection: tools/dist_train.sh.
    "dist_train": Training(
        """#!/usr/bin/env bash
CONFIG=$1
GPUS=$2
NNODES=${NNODES:-1}
PORT=${PORT:-29500}

PYTHONPATH="$(dirname $0)/..":$PYTHONPATH \\
python -m torch.distributed.launch \\
    --nnodes=$NNODES \\
    --master_port=$PORT \\
    --nproc_per_node=$GPUS \\
    $(dirname "$0")/train.py \\
    $CONFIG \\
    --launcher pytorch ${@:3}
""",
        (("python -m torch.distributed.launch --nnodes=1 --master_port=29500 --nproc_per_node=3", None),),
        ("config.py", "3", "--seed", "0"),
    ),
    "an interpreter in a variable": Training(
        """PYTHON=${PYTHON:-"python"}
CUDA_VISIBLE_DEVICES=1,2 $PYTHON -m torch.distributed.run --nproc_per_node=$2 train.py $1 ${@:3}
""",
        (("python -m torch.distributed.run --nproc_per_node=2", "1,2"),),
        ("cfg", "2"),
    ),
    "a number that is not given": Training(
        """PYTHON=$(which python)
$PYTHON -m torch.distributed.run --nproc_per_node=$(nvidia-smi -L | wc -l) train.py
""",
        (("$(which python) -m torch.distributed.run --nproc_per_node=$(nvidia-smi -L | wc -l)", None),),
        unfollowed=(2,),
    ),
    # timm: distributed_train.sh.
    "shift": Training(
        """#!/bin/bash
NUM_PROC=$1
shift
torchrun --nproc_per_node=$NUM_PROC train.py "$@"
""",
        (("torchrun --nproc_per_node=4", None),),
        ("4", "/data", "--model", "resnet50"),
    ),
    # VLMEvalKit, Qwen: all devices that nvidia-smi or torch finds.
    "counted by nvidia-smi": Training(
        """#!/bin/bash
set -x
export GPU=$(nvidia-smi --list-gpus | wc -l)
torchrun --nproc-per-node=$GPU run.py ${@:1}
""",
        (("torchrun --nproc-per-node=$(nvidia-smi --list-gpus | wc -l)", None),),
        unfollowed=(3,),
    ),
    "qwen": Training(
        """#!/bin/bash
export CUDA_DEVICE_MAX_CONNECTIONS=1
DIR=`pwd`
GPUS_PER_NODE=$(python -c 'import torch; print(torch.cuda.device_count())')
NNODES=${NNODES:-1}
MODEL="Qwen/Qwen-7B" # Set the path if you do not want to load from huggingface directly
function usage() {
    echo '
Usage: bash finetune/finetune_ds.sh [-m MODEL_PATH] [-d DATA_PATH]
'
}
while [[ "$1" != "" ]]; do
    case $1 in
        -m | --model )
            shift
            MODEL=$1
            ;;
        -g | --gpus )
            shift
            GPUS_PER_NODE=$1
            ;;
        -h | --help )
            usage
            exit 0
            ;;
        * )
            echo "Unknown argument ${1}"
            exit 1
            ;;
    esac
    shift
done
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \\
    --nnodes $NNODES
"
torchrun $DISTRIBUTED_ARGS finetune.py --model_name_or_path $MODEL
""",
        (("torchrun --nproc_per_node 2 --nnodes 1", None),),
        ("-m", "/models/qwen", "--gpus", "2"),
    ),
    # OpenRLHF: examples/scripts.
    "openrlhf": Training(
        """set -x
export CUDA_VISIBLE_DEVICES="3,4,5,6,7"
read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --max_len 2048 \\
   --zero_stage 2 \\
   --load_checkpoint
EOF
    # --packing_samples
if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
""",
        (("deepspeed --module", "3,4,5,6,7"),),
    ),
    # axolotl.
    "axolotl": Training(
        """#!/usr/bin/env bash
set -euo pipefail
cd axolotl
CFG="configs/lora.yaml"
CUDA_VISIBLE_DEVICES="" python -m axolotl.cli.preprocess $CFG
accelerate launch --num_processes "${NPROC:=2}" -m axolotl.cli.train "$CFG"
""",
        (
            ("python -m axolotl.cli.preprocess", ""),
            ("accelerate launch --num_processes 2 -m", None),
        ),
    ),
    "accelerate on eight devices": Training(
        """source activate llm
export CUDA_VISIBLE_DEVICES="0,1,2,3"
NUM_GPUS=$(echo $CUDA_VISIBLE_DEVICES | tr ',' '\\n' | wc -l)
accelerate launch --config_file ds.yaml --num_processes $NUM_GPUS \\
  --main_process_port $(shuf -i 20000-30000 -n 1) finetune.py \\
  --output_dir out/$(date +%s)
""",
        (
            (
                "accelerate launch --config_file ds.yaml --num_processes 4 --main_process_port"
                " $(shuf -i 20000-30000 -n 1)",
                "0,1,2,3",
            ),
        ),
    ),
    # Tables of seeds: one process per device.
    "a loop over seeds": Training(
        """declare -a seed=(1 2 3)
declare -a gpu=(0 1 2)
for ((i=0; i<${#seed[@]}; i++));
do
CUDA_VISIBLE_DEVICES=${gpu[i]} python train.py \\
    --seed=${seed[i]} &
done
wait
""",
        (("python", "0"), ("python", "1"), ("python", "2")),
    ),
    "getopts": Training(
        """gpus=0
while getopts ":g:n:h" opt; do
  case $opt in
    g) gpus="$OPTARG" ;;
    n) nproc="$OPTARG" ;;
    ?) exit 1 ;;
  esac
done
shift $((OPTIND-1))
CUDA_VISIBLE_DEVICES=$gpus torchrun --nproc-per-node ${nproc:-1} "$@"
""",
        (("torchrun --nproc-per-node 2", "4,5"),),
        ("-g", "4,5", "-n2", "train.py"),
    ),
    "one or several": Training(
        """GPUS_PER_NODE=$1
shift

if [ "$GPUS_PER_NODE" -gt 1 ]; then
    torchrun --nproc_per_node=$GPUS_PER_NODE train.py --ddp "$@"
else
    python train.py "$@"
fi
""",
        (("torchrun --nproc_per_node=2", None),),
        ("2",),
    ),
    "where it runs": Training(
        """if [ -f /etc/dsw ]; then
  export CUDA_VISIBLE_DEVICES=5
  N=1
else
  N=8
fi
torchrun --nproc_per_node $N train.py
""",
        (("torchrun --nproc_per_node $N", "?"),),
        unfollowed=(1,),
    ),
    "a check in front": Training(
        """#!/bin/bash
if ! command -v accelerate &> /dev/null; then
    echo "install accelerate first"; exit 1
fi
[ -d data ] || { echo "no data"; exit 1; }
eval "$(conda shell.bash hook)"
conda activate llm
accelerate launch --num_processes 4 train.py
""",
        (("accelerate launch --num_processes 4", None),),
    ),
    "perhaps again": Training(
        """if [ -e last.ckpt ]; then
    torchrun --nproc_per_node 8 train.py --resume last.ckpt
else
    torchrun --nproc_per_node 8 train.py
fi
""",
        (("torchrun --nproc_per_node 8", None), ("torchrun --nproc_per_node 8", None)),
        perhaps=True,
    ),
    "the first n": Training(
        """if [ "$#" -ne 1 ]; then
    echo "Usage: $0 <num_gpus>"
    exit 1
fi
NUM_GPUS="$1"
CUDA_VISIBLE_DEVICES=$(seq -s, 0 $((NUM_GPUS-1)))
export CUDA_VISIBLE_DEVICES
accelerate launch --num_processes $NUM_GPUS train.py
""",
        (("accelerate launch --num_processes 3", "0,1,2"),),
        ("3",),
    ),
    "counted by python": Training(
        """set -euo pipefail
export CUDA_VISIBLE_DEVICES=${CUDA_VISIBLE_DEVICES:-0,1,2,3}

NUM_GPUS=$(python - <<'PY'
import os
print(len(os.environ.get('CUDA_VISIBLE_DEVICES','0').split(',')))
PY
)
torchrun --nproc_per_node=${NUM_GPUS} train.py
""",
        (("torchrun --nproc_per_node=…", "0,1,2,3"),),
        unfollowed=(4,),
    ),
    "sh without bash": Training(
        """GPUS=${GPUS:-2}
[ -z "$OUT" ] && OUT=out
[ "$MODE" = debug ] && GPUS=1
export CUDA_VISIBLE_DEVICES=0,$GPUS
exec torchrun --nproc_per_node=$GPUS train.py
""",
        (("torchrun --nproc_per_node=2", "0,2"),),
        shell="sh",
    ),
}
