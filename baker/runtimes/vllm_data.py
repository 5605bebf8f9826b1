"""vLLM knowledge as per-version data: log lines, transient files, neutral arguments, strategies.

Read in vLLM 0.24 to 0.33, checked on 0.32 (CPU) and, on the virtual GPU, on the CUDA builds 0.31 to 0.33 (docs/evidence). A version outside of
`KNOWN` gets the lines that all known versions share, and every argument and variable counts: unknown is never neutral.
"""

from __future__ import annotations

from typing import Any

from baker.inside.job import Watch
from baker.inside.manifest import Pattern
from baker.spec import Strategy, Target, Transient

CPU_KINDS = ("bytecode", "inductor", "vllm", "hf_modules", "numba", "torch_extensions", "tvm_ffi")
KINDS = (*CPU_KINDS, "triton", "flashinfer", "nv", "deep_gemm", "cute_dsl", "quack", "flash_attention", "tilelang")
KNOWN = ("0.28", "0.29", "0.30", "0.31", "0.32", "0.33")

# Arguments that only say where the server listens or how it logs in to things; value = words that follow, None: all up to the next
# flag. vllm/entrypoints/openai/cli_args.py, 0.32.
TRANSPORT: dict[str, int | None] = {
    "--host": 1,
    "--port": 1,
    "--uds": 1,
    "--api-key": None,  # one key or several
    "--root-path": 1,
    "--ssl-keyfile": 1,
    "--ssl-certfile": 1,
    "--ssl-ca-certs": 1,
    "--ssl-cert-reqs": 1,
    "--ssl-ciphers": 1,
    "--enable-ssl-refresh": 0,
    "--hf-token": None,  # a switch or a value
}

# Not in vLLM's compile key and without influence on generated code: the opt-out lists of config/*.py, read in 0.33.
_NEUTRAL_ARGUMENTS = [
    "--served-model-name",
    "--seed",
    "--gpu-memory-utilization",
    "--kv-cache-memory-bytes",
    "--num-gpu-blocks-override",
    "--tokenizer",
    "--tokenizer-mode",
    "--tokenizer-revision",
    "--load-format",
    "--download-dir",
    "--chat-template",
    "--chat-template-content-format",
    "--response-role",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "--reasoning-parser",
    "--disable-log-stats",
    "--disable-log-requests",
    "--enable-log-requests",
    "--enable-log-outputs",
    "--max-log-len",
    "--log-level",
    "--log-config-file",
    "--uvicorn-log-level",
    "--disable-uvicorn-access-log",
    "--disable-fastapi-docs",
    "--allowed-origins",
    "--allowed-methods",
    "--allowed-headers",
    "--allow-credentials",
    "--otlp-traces-endpoint",
    "--jit-monitor-mode",
    "--jit-monitor-verbose",
    "--shutdown-timeout",
]
# The plain Inductor cache is keyed by the graph: these two were changed and still hit fully (measured, CPU, 0.32). In the AOT
# artifact's key they count.
_NEUTRAL_FOR_GRAPHS = ["--max-num-seqs", "--max-num-batched-tokens"]

# Names (without VLLM_) on the ignore list of `compile_factors` in vllm/envs.py, read in 0.32; left out: those that change code or the driver.
_NEUTRAL_VARIABLES = [
    "VLLM_" + name
    for name in (
        "API_KEY ASSETS_CACHE ASSETS_CACHE_MODEL_CLEAN AUDIO_FETCH_TIMEOUT CACHE_ROOT CONFIG_ROOT CPU_KVCACHE_SPACE DEBUG_DUMP_PATH "
        "DEBUG_LOG_API_SERVER_RESPONSE DO_NOT_TRACK DP_MASTER_IP DP_MASTER_PORT ELASTIC_EP_SCALE_UP_LAUNCH ENABLE_STARTUP_PLAN "
        "ENABLE_V1_MULTIPROCESSING EXECUTE_MODEL_TIMEOUT_SECONDS FLASHINFER_AUTOTUNE_CACHE_DIR FLASHINFER_AUTOTUNE_SKIP_OPS FORCE_AOT_LOAD "
        "HOST_IP HTTP_TIMEOUT_KEEP_ALIVE IMAGE_FETCH_TIMEOUT KEEP_ALIVE_ON_ENGINE_DEATH LOGGING_COLOR LOGGING_CONFIG_PATH LOGGING_LEVEL "
        "LOGGING_PREFIX LOGGING_STREAM LOG_STATS_INTERVAL MAX_AUDIO_CLIP_FILESIZE_MB MAX_AUDIO_DECODE_BYTES MAX_AUDIO_DECODE_DURATION_S "
        "MAX_AUDIO_PREPROCESS_WORKERS MAX_EMBED_DECODE_BYTES MAX_IMAGE_PIXELS MEDIA_CACHE MEDIA_CACHE_MAX_SIZE_MB MEDIA_CACHE_TTL_HOURS "
        "MEDIA_CONNECTOR MEDIA_FETCH_MAX_RETRIES MEDIA_LOADING_THREAD_COUNT MEDIA_URL_ALLOW_REDIRECTS MODEL_REDIRECT_PATH "
        "NIXL_SIDE_CHANNEL_HOST NO_USAGE_STATS OBJECT_STORAGE_SHM_BUFFER_NAME PORT RANDOMIZE_DP_DUMMY_INPUTS RINGBUFFER_WARNING_INTERVAL "
        "RPC_BASE_PATH SERVER_DEV_MODE SKIP_MODEL_NAME_VALIDATION SKIP_VERSION_SUFFIX TRITON_JIT_WARMUP_NUM_THREADS TUNED_CONFIG_FOLDER "
        "USAGE_STATS_SERVER USE_MODELSCOPE V1_OUTPUT_PROC_CHUNK_SIZE VIDEO_FETCH_TIMEOUT VIDEO_LOADER_BACKEND WORKER_MULTIPROC_METHOD "
        "WORKER_SHUTDOWN_TIMEOUT_SECONDS XLA_CACHE_PATH "
    ).split()
] + [
    "TRITON_STORE_BINARY_ONLY",  # says what Triton keeps beside the cubin; in no key
    # What Kubernetes adds for a service called vllm-…: not registered, so not hashed.
    "VLLM_*SERVICE_HOST",
    "VLLM_*SERVICE_PORT*",
    "VLLM_*PORT_[0-9]*_TCP*",
]
_WATCHED = ["VLLM_*", "TORCH_*", "TORCHINDUCTOR_*", "TRITON_*", "CUDA_HOME", "CXX", "OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "MOONCAKE_*"]


def series(version: str) -> str:
    """`0.32` of `0.32.0+cpu`."""
    return ".".join(version.split("+")[0].split(".")[:2])


_PHASES = (
    Watch("engine-init", "phase", r"init engine \(profile, create kv cache, warmup model\) took ([0-9.]+) s"),
    Watch("model-load", "phase", r"Model loading took .* and ([0-9.]+) seconds"),
    Watch("weights", "phase", r"Loading weights took ([0-9.]+) seconds"),
    Watch("torch-compile", "phase", r"torch\.compile took ([0-9.]+) s in total"),
    Watch("profiling", "phase", r"Initial profiling/warmup run took ([0-9.]+) s"),
    Watch("dynamo", "phase", r"Dynamo bytecode transform time: ([0-9.]+) s"),
)
_VERDICTS = (
    Watch("aot-loaded", "loaded", r"Directly load AOT compilation from path"),
    Watch("graphs-loaded", "loaded", r"Directly load the compiled graph\(s\) for compile range"),
    Watch("aot-refused", "refused", r"Compiling model again due to a load failure from"),
    Watch("graph-compiled", "event", r"Compiling a graph for compile range .* takes"),
    Watch("graph-cached", "event", r"Cache the graph of compile range"),
    Watch("aot-saved", "event", r"saved AOT compiled function to"),
    Watch("aot-not-saved", "note", r"unable to save AOT compiled function to"),
    # The JIT monitor also fires on disk hits (triton calls jit_post_compile_hook then): a note, never an event by itself.
    Watch("jit-monitor", "note", r"compilation during inference"),
)


def watch(version: str) -> tuple[Watch, ...]:
    """Rules over log lines. The texts are the same in all of `KNOWN`; for others only phases are read, verdicts come from files and the recorder."""
    return (*_PHASES, *_VERDICTS) if series(version) in KNOWN else _PHASES


def strategies(target: Target) -> tuple[Strategy, ...]:
    """AOT first: where it loads it is the fastest. Then Inductor's own cache."""
    if target.is_gpu:
        return (
            Strategy(
                "aot",
                "vLLM AOT artifact",
                {},
                ("vllm",),
                {"VLLM_FORCE_AOT_LOAD": "1", "FLASHINFER_DISABLE_JIT": "1", "CUDA_DISABLE_PTX_JIT": "1"},
                {"FLASHINFER_DISABLE_JIT": "flashinfer"},  # refuses every module that nvcc built, fresh or not (flashinfer 0.7.2, jit/core.py)
                ("aot-loaded",),
                ("vllm/torch_compile_cache/torch_aot_compile/*/rank_*/model",),  # one a rank, every one loaded
            ),
            Strategy("compile-cache", "vLLM piecewise compile cache", {"VLLM_USE_AOT_COMPILE": "0"}, ("vllm",), load_lines=("graphs-loaded",)),
        )
    # Without it every start in a fresh temporary directory compiles a 156 MB header that no cache variable moves (measured, torch 2.13).
    no_header = {"TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    return (
        Strategy("aot", "vLLM AOT artifact", no_header, ("vllm",), {"VLLM_FORCE_AOT_LOAD": "1"}, load_lines=("aot-loaded",)),
        Strategy("inductor", "torch Inductor's own cache, AOT off", {"VLLM_USE_AOT_COMPILE": "0", **no_header}, ("inductor",)),
    )


TRANSIENT = (
    Transient("tmp", Pattern("vllm_dist_*", "rendezvous file of torch.distributed, one a start")),
    Transient("tmp", Pattern("*.lock", "file lock")),
    Transient("home", Pattern(".humming/tmp/lock/*.lock", "file lock of the humming kernels' launcher, taken at every import")),
)


def neutral(version: str, target: Target, strategy: str) -> dict[str, Any]:
    """The manifest's `neutral` document. An unknown version has no neutral argument but transport."""
    known = series(version) in KNOWN
    arguments = [*_NEUTRAL_ARGUMENTS, *(_NEUTRAL_FOR_GRAPHS if strategy == "inductor" else [])] if known else []
    return {
        "transport": TRANSPORT,
        "arguments": arguments,
        "variables": _NEUTRAL_VARIABLES if known else [],
        "watched": _WATCHED,
        "kinds": ["vllm", "inductor"],
    }
