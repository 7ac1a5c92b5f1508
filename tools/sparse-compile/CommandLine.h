// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the command line of sparse-compile says.

#ifndef BSR_TOOLS_SPARSE_COMPILE_COMMANDLINE_H
#define BSR_TOOLS_SPARSE_COMPILE_COMMANDLINE_H

#include "bsr/Pipelines/Pipelines.h"
#include "support/Chips.h"
#include "llvm/Support/CommandLine.h"

namespace mlir::bsr {

/// What is written.
enum class Emit { MLIR, LLVM, PTX, Object, Library };

/// What the command line says.
struct CommandLine {
  llvm::cl::OptionCategory category{"Options"};
  llvm::cl::opt<std::string> input{llvm::cl::Positional, llvm::cl::init("-"),
                                   llvm::cl::desc("<step.mlir>"),
                                   llvm::cl::cat(category)};
  llvm::cl::opt<std::string> output{
      "o", llvm::cl::desc("The file to write (-: the standard output)"),
      llvm::cl::value_desc("file"), llvm::cl::Required,
      llvm::cl::cat(category)};
  llvm::cl::list<std::string> marks{
      "mark",
      llvm::cl::desc(
          "Make weights block-sparse: the options of the pass bsr-mark, "
          "such as \"match=.*_w$ block=16x16 density=0.1\", or "
          "\"match=.*_w$ pattern=file.json\" for a pattern that never "
          "changes; or a pattern for attention: \"attention=. window=3 "
          "global=1 random=2 block=64x64\" (repeatable)"),
      llvm::cl::value_desc("options"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> targetCpu{
      "target-cpu", llvm::cl::init("host"),
      llvm::cl::desc("The processor to compile for (default: host, this one; "
                     "with another --target-triple, any of its kind)"),
      llvm::cl::value_desc("name"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> targetTriple{
      "target-triple",
      llvm::cl::desc("The machine to compile for, x86_64-linux-gnu or "
                     "aarch64-linux-gnu (default: this one)"),
      llvm::cl::value_desc("triple"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> sysroot{
      "sysroot",
      llvm::cl::desc(
          "The folder in which the libraries lie that a step for another "
          "machine is linked with (default: where Debian's packages for "
          "cross compilation and of other architectures have them)"),
      llvm::cl::value_desc("folder"), llvm::cl::cat(category)};
  const std::string targetHelp =
      "What kernels are made for (default: cpu): cpu, the vectors, caches and "
      "cores of the processor; scalar, plain loops, one element after the "
      "other: slow, to compare with; or an NVIDIA GPU, " +
      nvidia::listChips() +
      ": a shared library, the kernels with -o <file>.ptx, or the module that "
      "launches them with -o <file>.mlir";
  llvm::cl::opt<std::string> target{
      "target", llvm::cl::init("cpu"), llvm::cl::desc(targetHelp),
      llvm::cl::value_desc("name"), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> vectorBits{
      "vector-bits",
      llvm::cl::desc(
          "Bits of the vectors that kernels are made of, instead of those "
          "of the processor's registers"),
      llvm::cl::value_desc("bits"), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> numRegisters{
      "num-registers",
      llvm::cl::desc(
          "Vector registers that kernels are made for, instead of those "
          "of the processor"),
      llvm::cl::value_desc("number"), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> l1Bytes{
      "l1-bytes",
      llvm::cl::desc(
          "Bytes of a core's first-level cache, instead of those of the "
          "processor"),
      llvm::cl::value_desc("bytes"), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> l2Bytes{
      "l2-bytes",
      llvm::cl::desc(
          "Bytes of a core's second-level cache, instead of those of the "
          "processor"),
      llvm::cl::value_desc("bytes"), llvm::cl::cat(category)};
  llvm::cl::opt<double> mmaRate{
      "mma-rate",
      llvm::cl::desc(
          "What mma.sync reaches of the tensor cores' rate, in the report "
          "for a GPU, instead of what the chip is taken to reach"),
      llvm::cl::value_desc("share"), llvm::cl::cat(category)};
  llvm::cl::opt<double> wgmmaRate{
      "wgmma-rate",
      llvm::cl::desc(
          "What wgmma reaches of the tensor cores' rate, in the report for "
          "a GPU, instead of what the chip is taken to reach"),
      llvm::cl::value_desc("share"), llvm::cl::cat(category)};
  llvm::cl::opt<double> l2Bandwidth{
      "l2-bandwidth",
      llvm::cl::desc(
          "Bytes a second that a GPU's second-level cache delivers, in the "
          "report, instead of the chip's"),
      llvm::cl::value_desc("bytes"), llvm::cl::cat(category)};
  llvm::cl::opt<double> memoryBandwidth{
      "memory-bandwidth",
      llvm::cl::desc(
          "Bytes a second of a GPU's memory, in the report, instead of the "
          "chip's"),
      llvm::cl::value_desc("bytes"), llvm::cl::cat(category)};
  llvm::cl::opt<double> launchTime{
      "launch-time",
      llvm::cl::desc(
          "Microseconds that a launch takes on a GPU beside what it does, in "
          "the report, instead of the chip's"),
      llvm::cl::value_desc("us"), llvm::cl::cat(category)};
  llvm::cl::opt<double> overlap{
      "overlap",
      llvm::cl::desc(
          "How far a launch uses a GPU's resources at one time, in the "
          "report: 1, it takes as long as the busiest one (default); 0, as "
          "all of them one after the other"),
      llvm::cl::value_desc("share"), llvm::cl::cat(category)};
  llvm::cl::opt<unsigned> level{
      "O",
      llvm::cl::Prefix,
      llvm::cl::init(3),
      llvm::cl::desc("Optimization level, 0 to 3 (default: 3)"),
      llvm::cl::value_desc("level"),
      llvm::cl::cat(category)};
  llvm::cl::opt<Emit> emit{
      "emit", llvm::cl::init(Emit::Library),
      llvm::cl::desc("What to write (default: so; for a GPU, what -o ends in)"),
      llvm::cl::values(
          clEnumValN(Emit::MLIR, "mlir",
                     "the LLVM dialect; for a GPU, launches of kernels"),
          clEnumValN(Emit::LLVM, "llvm", "optimized LLVM IR"),
          clEnumValN(Emit::PTX, "ptx", "kernels for a GPU"),
          clEnumValN(Emit::Object, "obj", "an object file"),
          clEnumValN(Emit::Library, "so", "a shared library")),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> report{
      "print-report",
      llvm::cl::desc("Print what was made sparse and what was not; "
                     "for a GPU, how long each kernel takes at "
                     "least, as a model predicts it"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> cubin{
      "cubin",
      llvm::cl::desc("Put machine code of a GPU's kernels, which ptxas makes, "
                     "into the library, beside their PTX; without the option "
                     "where ptxas is installed"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> assemble{
      "assemble",
      llvm::cl::desc(
          "Let the model of a GPU count instructions of the machine, which "
          "ptxas and nvdisasm make of PTX (PTXAS, NVDISASM, PATH, "
          "CUDA_HOME), and print registers and spills"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> dropUpdates{
      "drop-updates",
      llvm::cl::desc(
          "Compile only what the step returns beside its state, the loss "
          "and metrics: a program that evaluates"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> requireSparse{
      "require-sparse",
      llvm::cl::desc(
          "Fail if a product with a marked weight or its gradient stays "
          "dense, its gradient is not found, or attention keeps its scores in "
          "memory for what else is done with them, with a sentence for each"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> tf32{
      "tf32",
      llvm::cl::desc(
          "For a GPU, round what products of f32 read to tf32, which "
          "tensor cores multiply"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> timers{
      "timers",
      llvm::cl::desc("Let the step measure the time of each of its kernels "
                     "(sparse-train --timers prints it)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> bf16Dots{
      "bf16-dots",
      llvm::cl::desc(
          "How products of bf16 are summed up: none, as f32; native, in pairs "
          "by an instruction of the processor; emulated, as "
          "--emulate-instructions does (default: native where the processor "
          "is faster with it, else none)"),
      llvm::cl::value_desc("none|native|emulated"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> bf16Tiles{
      "bf16-tiles",
      llvm::cl::desc(
          "How sparse products of bf16 in blocks of whole tiles are computed: "
          "none, as --bf16-dots says; amx, by the tiles of AMX; emulated, by "
          "plain vectors of the same roundings, on any processor (default: "
          "none)"),
      llvm::cl::value_desc("none|amx|emulated"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> emulateInstructions{
      "emulate-instructions",
      llvm::cl::desc("Make kernels for instructions that multiply pairs of "
                     "bf16 (AVX512_BF16), and replace each by plain vectors of "
                     "the same roundings, to run them on any processor"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> attention{
      "find-attention",
      llvm::cl::desc("Compute attention, where a step has it, without scores "
                     "in memory (default: true)"),
      llvm::cl::init(true), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> attentionKeys{
      "attention-keys",
      llvm::cl::desc("Leave attention to fewer keys as it is (default: 256 "
                     "on processors, 1 on GPUs): its scores are few"),
      llvm::cl::value_desc("count"), llvm::cl::init(256),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> blockSteps{
      "block-steps",
      llvm::cl::desc("Let optimizers that correct bias by 1 - beta^t count the "
                     "steps of each block of marked weights, so that regrown "
                     "blocks begin as new weights do"),
      llvm::cl::init(false), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> blockRamp{
      "block-ramp",
      llvm::cl::desc("Let the updates of a regrown block of a marked weight "
                     "rise to what the optimizer makes, over so many steps"),
      llvm::cl::value_desc("steps"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> scoreNorm{
      "score-norm",
      llvm::cl::desc(
          "Let the step compute scores of all blocks of the gradients of "
          "marked weights, when asked to, for pattern updates by gradient "
          "(RigL): norms of the blocks"),
      llvm::cl::value_desc("l1|l2|linf"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> dataParallel{
      "data-parallel",
      llvm::cl::desc(
          "Let the step take the means of gradients, loss and scores over the "
          "processes of a run, each of which has a batch of its own (mpirun -n "
          "N sparse-train)"),
      llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> shardState{
      "shard-state",
      llvm::cl::desc(
          "Let each of so many processes of a run have a share of the "
          "optimizer's moments and update a share of the parameters (ZeRO-1), "
          "beside --data-parallel"),
      llvm::cl::value_desc("processes"), llvm::cl::cat(category)};
  llvm::cl::opt<unsigned> stages{
      "stages",
      llvm::cl::desc(
          "Cut the step into stages of about one time, one for each process of "
          "a run (mpirun -n N sparse-train), and compile one of them"),
      llvm::cl::value_desc("number"), llvm::cl::cat(category)};
  llvm::cl::opt<unsigned> stage{
      "stage", llvm::cl::desc("The stage to compile, counted from 0"),
      llvm::cl::value_desc("number"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> memory{
      "memory",
      llvm::cl::desc("Fail if the step, or the stage of it, takes more: its "
                     "buffers and its arena, such as 16GiB"),
      llvm::cl::value_desc("bytes"), llvm::cl::cat(category)};
  llvm::cl::opt<int64_t> microBatches{
      "micro-batches", llvm::cl::init(1),
      llvm::cl::desc(
          "Let a run of the step go through so many micro-batches and update "
          "once, by the mean of their gradients; default: 1"),
      llvm::cl::value_desc("number"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> schedule{
      "schedule", llvm::cl::init(BSRMicroBatchesOptions().schedule),
      llvm::cl::desc(
          "The order of the micro-batches of a stage: 1f1b, one forward and "
          "one back in turn, or gpipe, all forward before all back; default: "
          "1f1b"),
      llvm::cl::value_desc("gpipe|1f1b"), llvm::cl::cat(category)};
  llvm::cl::opt<uint64_t> maxOperations{
      "max-operations", llvm::cl::init(BSRUnrollOptions().maxOperations),
      llvm::cl::desc(
          "The most operations that a loop over time may become (default: "
          "65536)"),
      llvm::cl::value_desc("number"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> verifyEach{
      "verify-each",
      llvm::cl::desc("Verify the module after each pass, not at the ends of "
                     "stages alone"),
      llvm::cl::cat(category)};
  llvm::cl::opt<bool> check{
      "check",
      llvm::cl::desc(
          "Run the compiled step once on random numbers, and fail, without "
          "writing it, unless it computes what an interpreter of the marked "
          "step does; for small steps: that is slow"),
      llvm::cl::cat(category)};
  llvm::cl::opt<std::string> tune{
      "tune", llvm::cl::ValueOptional,
      llvm::cl::desc(
          "Measure on this machine how else kernels may go through sparse "
          "products, for so many seconds (default: 60), those that compute "
          "most first, and take what is faster; what was found before is "
          "taken from $SPARSE_OPT_CACHE (default: ~/.cache/sparse-opt)"),
      llvm::cl::value_desc("seconds"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> remarks{
      "remarks",
      llvm::cl::desc("Write what passes decided, and why, to a file in YAML "
                     "(-: the standard output), whether the step compiles or "
                     "not"),
      llvm::cl::value_desc("file"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> remarksFilter{
      "remarks-filter", llvm::cl::init(".*"),
      llvm::cl::desc("Write remarks of the passes whose whole name this "
                     "expression matches (default: all)"),
      llvm::cl::value_desc("regex"), llvm::cl::cat(category)};
  llvm::cl::opt<std::string> openMP{
      "openmp",
      llvm::cl::desc(
          "The OpenMP runtime to link the library with, a file (default: "
          "LLVM's): libbsr_threads.so.1 is that of the program that loads it"),
      llvm::cl::value_desc("file"), llvm::cl::cat(category)};
  llvm::cl::opt<bool> time{"time",
                           llvm::cl::desc("Print the time of each phase"),
                           llvm::cl::cat(category)};
  llvm::cl::opt<bool> passTimes{
      "pass-times",
      llvm::cl::desc("Print the processor seconds of each pass, on one thread"),
      llvm::cl::cat(category)};
};

} // namespace mlir::bsr

#endif // BSR_TOOLS_SPARSE_COMPILE_COMMANDLINE_H
