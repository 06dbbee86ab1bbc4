"""Programs that serve models, or query them: vLLM, SGLang, TensorRT, Text Generation Inference, llama.cpp."""

from __future__ import annotations

from gputui.launching.programs.program import (
    TORCH_DEVICE,
    ConfigurationFile,
    DeviceOption,
    DeviceRange,
    Program,
    Size,
    Sizes,
)

_VLLM_SIZES = (
    Size("tensor-parallel-size|tp", "tp"),
    Size("pipeline-parallel-size|pp", "pp"),
    Size("prefill-context-parallel-size|pcp", "cp"),
    Size("data-parallel-size|dp", "dp"),
    Size("data-parallel-size-local|dpl", "dp here"),
    # Where its rank is given, one replica is started here: another load balancer has the others.
    Size("data-parallel-external-lb", "dp inside", flag=True),
    Size("data-parallel-rank|dpn", "dp inside"),
    Size("nnodes|n", "machines"),
)


def _vllm_total(sizes: Sizes) -> int:
    """The replicas on this machine: `create_engine_config` of vllm/engine/arg_utils.py."""
    here = 1 if "dp inside" in sizes else sizes.get("dp here", sizes.get("dp", 1))
    machines = 1 if "dp inside" in sizes or "dp here" in sizes else sizes.get("machines", 1)
    each = sizes.get("tp", 1) * sizes.get("pp", 1) * sizes.get("cp", 1)
    return max(1, each * here // machines)


def _sglang_total(sizes: Sizes) -> int:
    """Replicas multiply, unless they share the tensor-parallel group (`--enable-dp-attention`)."""
    replicas = 1 if "dp inside" in sizes else sizes.get("dp", 1)
    return max(1, sizes.get("tp", 1) * sizes.get("pp", 1) * replicas // sizes.get("machines", 1))


SERVING = (
    Program(
        name="vLLM",
        starts=("vllm serve", "vllm bench throughput|latency", "vllm run-batch"),
        modules=(
            "vllm.entrypoints.openai.api_server",
            "vllm.entrypoints.api_server",
            "vllm.entrypoints.cli.main serve",
        ),
        sizes=_VLLM_SIZES,
        devices=(DeviceOption("device-ids", counted="all"),),
        files=(ConfigurationFile("config"),),
        total=_vllm_total,
        asks="--tensor-parallel-size={count}",
        abbreviations=True,
        # int() of each entry of the list: vllm #20939, #41848 (since #45026 it accepts them).
        only_indices=True,
        images=("vllm-openai", "vllm-openai-rocm", "vllm-tpu"),
        source="vllm/engine/arg_utils.py, vllm/config/parallel.py; --device-ids: vllm #45026",
    ),
    Program(
        name="TRL's vLLM",
        starts=("trl vllm-serve",),
        sizes=_VLLM_SIZES,
        files=(ConfigurationFile("config"),),
        total=_vllm_total,
        asks="--tensor_parallel_size={count}",
        only_indices=True,
        source="trl/scripts/vllm_serve.py, 1.16",
    ),
    Program(
        name="SGLang",
        starts=("sglang serve",),
        modules=("sglang.launch_server", "sglang.cli.main serve", "sglang.bench_offline_throughput"),
        sizes=(
            Size("tensor-parallel-size|tp-size|tp", "tp"),
            Size("pipeline-parallel-size|pp-size|pp", "pp"),
            Size("data-parallel-size|dp-size|dp", "dp"),
            Size("enable-dp-attention", "dp inside", flag=True),
            Size("nnodes", "machines"),
        ),
        positions=DeviceRange("base-gpu-id", "gpu-id-step"),
        files=(ConfigurationFile("config"),),
        total=_sglang_total,
        asks="--tp-size={count}",
        abbreviations=True,
        images=("sglang",),
        source="sglang/srt/arg_groups/fields/parallel.py and device.py, 0.5.23",
    ),
    Program(
        name="Text Generation Inference",
        starts=("text-generation-launcher",),
        sizes=(Size("num-shard", "tp"),),
        variables=("NUM_SHARD",),
        images=("text-generation-inference",),
        # Without a number it counts the entries of the list of visible devices.
        source="text-generation-inference, launcher/src/main.rs: find_num_shards",
    ),
    Program(
        name="TensorRT-LLM",
        starts=("trtllm-serve",),
        sizes=(Size("tp-size", "tp"), Size("pp-size", "pp"), Size("cp-size", "cp")),
        asks="--tp_size={count}",
        source="tensorrt_llm/commands/serve.py",
    ),
    Program(
        name="trtexec",
        starts=("trtexec",),
        devices=(DeviceOption("device", counted="visible", one=True),),
        source="TensorRT, samples/common/sampleOptions.cpp and sampleDevice.cpp: cudaSetDevice",
    ),
    Program(
        name="LMDeploy",
        starts=("lmdeploy serve api_server", "lmdeploy chat"),
        sizes=(Size("tp", "tp"),),
        asks="--tp={count}",
        source="lmdeploy/cli/utils.py: ArgumentHelper.tp",
    ),
    Program(
        name="llama.cpp",
        starts=("llama-server", "llama-cli", "llama-bench"),
        devices=(DeviceOption("device|dev", counted="visible", prefix="CUDA", cpu=("none",)),),
        source="llama.cpp, common/arg.cpp: --device",
    ),
    Program(
        name="lm-evaluation-harness",
        starts=("lm_eval", "lm-eval"),
        modules=("lm_eval",),
        sizes=(
            Size("tensor-parallel-size", "tp", inside="model-args|a"),
            Size("pipeline-parallel-size", "pp", inside="model-args|a"),
            Size("data-parallel-size", "dp", inside="model-args|a"),
        ),
        devices=(
            DeviceOption(
                "device", counted="visible", prefix=TORCH_DEVICE, whole=("cuda", "auto", ""), one=True
            ),
        ),
        source="lm_eval/_cli/run.py, lm_eval/models/vllm_causallms.py, 0.4.13",
    ),
    Program(
        name="Jupyter",
        starts=("jupyter", "jupyter-lab", "jupyter-notebook", "jupyter-server"),
        modules=("jupyter", "jupyterlab", "notebook", "jupyter_server"),
        # A kernel inherits the environment of its server.
        source="jupyter_client/launcher.py",
    ),
)
