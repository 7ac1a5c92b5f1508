"""The test suite: which files are tests, which tools they call."""

import os
import re
import shutil
import subprocess
import sys
import tomllib

from lit.llvm import llvm_config

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(__file__))
import lit_format  # noqa: E402: of this folder

config.name = "bsr"
config.test_format = lit_format.Format(not llvm_config.use_lit_shell)
# Features that all tests of a folder need: of scripts/run-tests, which says how to get them.
config.requires = []
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.bsr_obj_root, "test")
config.substitutions.append(("%src_root", config.bsr_src_root))
config.substitutions.append(("%bsr_obj_root", config.bsr_obj_root))
# Debian's Python has Debian's numpy; the first one on PATH may have JAX.
config.substitutions.append(("%numpy_python", "/usr/bin/python3"))
config.substitutions.append(("%python", "python3"))
config.substitutions.append(("%c_compiler", config.c_compiler))
config.substitutions.append(("%cxx_compiler", config.cxx_compiler))
config.substitutions.append(("%mlir_dir", config.mlir_dir))
config.substitutions.append(("%plugin", os.path.join(config.bsr_obj_root, "lib", "SparseOptPlugin.so")))
interface = "-I" + os.path.join(config.bsr_src_root, "runtime", "include")
unigram_step = os.path.join(config.test_source_root, "Tools", "Inputs", "unigram-step.c")
config.substitutions.append(
    ("%build_step", f"{config.c_compiler} -shared -fPIC -O1 {interface} {unigram_step} -lm")
)
record_step = os.path.join(config.test_source_root, "Tools", "Inputs", "record-step.c")
config.substitutions.append(
    ("%build_record_step", f"{config.c_compiler} -shared -fPIC -O1 {interface} {record_step}")
)
config.substitutions.append(("%build_library", f"{config.c_compiler} -shared -fPIC"))
config.substitutions.append(("%fake_driver", os.path.join(config.bsr_obj_root, "lib", "fake-driver")))

llvm_config.with_environment("PATH", config.llvm_tools_dir, append_path=True)
llvm_config.with_environment("PATH", os.path.join(config.bsr_obj_root, "bin"), append_path=True)
# Tools of another build come first, where one is asked for: scripts/check-sanitizers.sh.
other_tools = [path for path in [lit_config.params.get("tools")] if path]
# In a shell, with KiB. Tools of the address sanitizer reserve terabytes.
config.substitutions.append(("%limit_memory", "true" if other_tools else "ulimit -v"))
for path in other_tools:
    llvm_config.with_environment("PATH", path, append_path=True)
llvm_config.use_default_substitutions()
llvm_config.add_tool_substitutions(
    ["bsr-unittests", "fuzz-runtime", "fuzz-train", *(["ptx-check", "ptx-run"] if config.has_ptx else []), "sparse-checkpoint", "sparse-compile", "sparse-lsp-server", "sparse-opt", "sparse-partition", "sparse-reduce", "sparse-report", "sparse-run", "sparse-sweep", "sparse-train", "sparse-wandb", "mlir-opt", "mlir-translate",
     "mlir-runner", "runtime-check"],
    [*other_tools, os.path.join(config.bsr_obj_root, "bin"), config.llvm_tools_dir],
)

if shutil.which("dpkg-shlibdeps") and shutil.which("file"):
    config.available_features.add("dpkg-dev")


def find_cuda(tool):
    """The path of a program of CUDA: where the environment says (PTXAS, NVDISASM), on PATH, in CUDA's folder; or None."""
    folder = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin")
    return os.environ.get(tool.upper()) or shutil.which(tool) or shutil.which(tool, path=folder)


ptxas = find_cuda("ptxas")
if ptxas:
    config.available_features.add("ptxas")
    config.substitutions.append(("%ptxas", ptxas))
nvdisasm = find_cuda("nvdisasm")
if nvdisasm:
    config.available_features.add("nvdisasm")
llvm_config.with_environment("PTXAS", ptxas or "")
llvm_config.with_environment("NVDISASM", nvdisasm or "")


# Tests of many similar commands run one half of them, `%if half-0 %{ ... %}` or `%if half-1`: which, BSR_TURN says, at another
# rate than it says of cases (Integration/step.py). With BSR_ALL=1 both.
for half in (0, 1):
    if os.environ.get("BSR_ALL") == "1" or int(os.environ.get("BSR_TURN", "0")) // 2 % 2 == half:
        config.available_features.add(f"half-{half}")

# What emulates AArch64, with libraries for it, and what was built for it.
sysroot = os.path.join(config.bsr_src_root, "build", "aarch64-sysroot")
arm_tools = os.path.join(config.bsr_src_root, "build", "aarch64", "bin")
if shutil.which("qemu-aarch64") and os.path.exists(os.path.join(sysroot, "packages")):
    config.available_features.add("aarch64")
    if os.path.exists(os.path.join(arm_tools, "sparse-train")):
        config.available_features.add("aarch64-runtime")
config.substitutions.append(("%arm_sysroot", sysroot))
config.substitutions.append(("%arm_tools", arm_tools))
config.substitutions.append(("%arm_qemu", f"qemu-aarch64 -L {sysroot}"))

# Instructions that multiply pairs of bf16, in the widths that kernels take, and tiles.
if os.path.exists("/proc/cpuinfo"):
    with open("/proc/cpuinfo") as file:
        flags = set(file.read().split())
    if {"avx512_bf16", "avx512vl", "avx512bw"} <= flags:
        config.available_features.add("avx512-bf16")
    if {"amx_tile", "amx_bf16"} <= flags:
        config.available_features.add("amx")

# What compiles kernels of others, in the environment that scripts/check-others makes.
triton_python = os.path.join(config.bsr_src_root, "build", "others", "bin", "python")
if os.path.exists(os.path.join(config.bsr_src_root, "build", "others", "pins")):
    config.available_features.add("triton")
    config.substitutions.append(("%triton_python", triton_python))

# NVIDIA's own header, which nothing needs but a test that compares it.
cuda_include = os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "include")
if os.path.exists(os.path.join(cuda_include, "cuda.h")):
    config.available_features.add("cuda-header")
    config.substitutions.append(("%cuda_include", cuda_include))


def find_gpu():
    """What ptx-run says of the first NVIDIA GPU, or None."""
    path = [*other_tools, os.path.join(config.bsr_obj_root, "bin")][0]
    try:
        done = subprocess.run([os.path.join(path, "ptx-run"), "--device-name"], capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


gpu = find_gpu()
if gpu:
    config.available_features.add("nvidia-gpu")
    version = re.search(r"sm_\d+", gpu)[0]
    # The instructions of these chips alone are in programs for them alone.
    config.substitutions.append(("%gpu_chip", version + "a" * (version in ("sm_90", "sm_100"))))
llvm_config.with_system_environment(["BSR_ALL", "BSR_TURN", "CUDA_VISIBLE_DEVICES", "PTX_RUN_DEVICE"])
# LLVM_DEBUG prints in builds with assertions alone.
if config.has_assertions:
    config.available_features.add("assertions")
# What runs kernels without a GPU, and the driver that it is behind; and the tests of what it does and checks.
if config.has_ptx:
    config.available_features.add("ptx-run")
if os.environ.get("PTX_RUN_DEVICE") == "1":
    lit_config.note(f"kernels run on {gpu or 'a GPU, but there is none'}: nothing checks what they do; tests of the interpreter are not run")
elif config.has_ptx:
    config.available_features.add("ptx-interpreter")


# An MPI, and what reaches it.
mpi_library = os.path.join(config.bsr_obj_root, "lib", "libbsr_mpi.so")
if shutil.which("mpirun") and os.path.exists(mpi_library) and not other_tools:
    config.available_features.add("mpi")
    # Open MPI asks for these where tests run as root, or on fewer cores than processes.
    for name, value in (("OMPI_ALLOW_RUN_AS_ROOT", "1"), ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
                        ("OMPI_MCA_rmaps_base_oversubscribe", "1"), ("OMPI_MCA_hwloc_base_binding_policy", "none"),
                        ("OMPI_MCA_mpi_yield_when_idle", "1"), ("OMPI_MCA_btl_base_warn_component_unused", "0")):
        llvm_config.with_environment(name, value)
    # What Debian's package is for, the MPI of `mpirun`.
    if os.path.exists("/usr/lib/python3/dist-packages/mpi4py"):
        config.available_features.add("mpi4py")
    # MPICH beside it.
    if shutil.which("mpirun.mpich") and os.path.exists(mpi_library.replace("mpi.so", "mpi_mpich.so")):
        config.available_features.add("mpich")


def has_extra(requirements):
    """Returns whether Python has what python/pyproject.toml names for an extra.

    Of another version even the text of an export may differ: where the extra has a
    range, python/constraints.txt has the version that is tested here.
    """
    pins = [(re.match(r"[-\w]+", text)[0], text.partition("==")[2]) for text in requirements]
    pins = [(name, version or constraints[name]) for name, version in pins]
    check = """import sys, importlib.metadata as m, fnmatch as f
sys.exit(not all(f.fnmatch(m.version(p).split("+")[0], v) for p, v in %r))""" % pins
    return not subprocess.run(
        ["python3", "-c", check], stderr=subprocess.DEVNULL
    ).returncode


with open(os.path.join(config.bsr_src_root, "python", "constraints.txt")) as file:
    constraints = dict(line.strip().split("==") for line in file if "==" in line)
with open(os.path.join(config.bsr_src_root, "python", "pyproject.toml"), "rb") as file:
    extras = tomllib.load(file)["project"]["optional-dependencies"]
for extra, requirements in extras.items():
    if has_extra(requirements):
        config.available_features.add(extra)
for package in ("numpy", "safetensors", "tensorboard", "wandb"):
    check = f"import importlib.util as u, sys; sys.exit(not u.find_spec('{package}'))"
    if not subprocess.run(["python3", "-c", check]).returncode:
        config.available_features.add(package)
llvm_config.with_environment("PYTHONDONTWRITEBYTECODE", "1")
# What is said after some seconds depends on the machine.
llvm_config.with_environment("SPARSE_OPT_PROGRESS", "0")
# Tests make what they export.
llvm_config.with_environment("SPARSE_OPT_CACHE_EXPORTS", "0")
# What is read before it is written, or after it is freed, is no 0 by chance (malloc_perturb in mallopt(3)).
llvm_config.with_environment("MALLOC_PERTURB_", "170")
# References are computed by one thread beside the other tests, and so are kernels in the interpreter of PTX. Threads of a
# step that has ended sleep: by default those of OpenMP keep a core busy for 200 ms.
llvm_config.with_environment("OPENBLAS_NUM_THREADS", "1")
llvm_config.with_environment("PTX_RUN_THREADS", "1")
llvm_config.with_environment("KMP_BLOCKTIME", "0")
for path in ("python", "examples", "test/Python/Inputs", "test/Integration",
             "test/Integration/bert_tiny"):
    path = os.path.join(config.bsr_src_root, path)
    llvm_config.with_environment("PYTHONPATH", path, append_path=True)
