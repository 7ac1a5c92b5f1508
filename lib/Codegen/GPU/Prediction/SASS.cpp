// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads machine code, and compares it with PTX.

#include "bsr/Codegen/GPU/Prediction/SASS.h"
#include "ptx/Program.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include "llvm/ADT/StringExtras.h"

using namespace llvm;
using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::gpu;

/// True of what `nvdisasm` writes for an instruction that is fixed.
static bool isFixedOpcode(StringRef opcode) {
  return llvm::is_contained(ArrayRef<StringRef>{"LD", "LDG", "LDS", "LDSM",
                                                "LDGSTS", "ST", "STG", "STS",
                                                "STSM", "HMMA", "HGMMA", "SHFL",
                                                "UTMALDG", "UTMASTG"},
                            opcode.split('.').first);
}

/// True of a fixed instruction of PTX.
static bool isFixedStatement(StringRef statement) {
  if (statement.starts_with("@")) // a guard
    statement = statement.split(' ').second;
  SmallVector<StringRef> parts;
  statement.take_until([](char c) { return c == ' '; }).split(parts, '.');
  StringRef name = parts.front();
  auto has = [&](StringRef part) { return llvm::is_contained(parts, part); };
  if (name == "ld")
    return !has("param"); // a constant operand
  if (name == "cp")
    return !has("commit_group") && !has("wait_group") && !has("wait_all") &&
           !has("mbarrier");
  if (name == "wgmma")
    return has("mma_async");
  return llvm::is_contained(
      ArrayRef<StringRef>{"st", "mma", "ldmatrix", "stmatrix", "shfl"}, name);
}

static std::vector<FlowInstruction> readFlow(const ::ptx::Kernel &kernel) {
  std::vector<FlowInstruction> placed;
  for (auto [insn, text] : llvm::zip_equal(kernel.code, kernel.texts)) {
    if (text == "}") // the end, where a kernel returns if it has not before
      break;
    FlowInstruction &made = placed.emplace_back();
    made.isFixed = isFixedStatement(text);
    bool branches = insn.flags & ::ptx::Branches;
    made.isLast = insn.guard < 0 && (branches || insn.flags & ::ptx::Exits);
    if (branches)
      made.target = insn.target;
  }
  return placed;
}

namespace {
/// Reads the instructions of one kernel, line by line.
class CodeReader {
public:
  void read(StringRef line);
  /// Gives branches the numbers of their targets, and drops what fills up the
  /// end: a branch to itself, and what does nothing.
  std::vector<FlowInstruction> finish();

private:
  std::vector<FlowInstruction> code;
  StringMap<unsigned> labels;
  std::vector<std::pair<unsigned, StringRef>> branches;
  unsigned used = 0; ///< up to the last instruction that is no filling
};
} // namespace

void CodeReader::read(StringRef line) {
  line = line.trim();
  if (line.starts_with(".L_") && line.ends_with(":")) {
    labels[line.drop_back()] = code.size();
    return;
  }
  // /*0010*/  @!P0 BRA `(.L_x_1) ;
  if (!line.consume_front("/*"))
    return;
  auto [number, text] = line.split("*/");
  text = text.trim();
  bool isGuarded = text.consume_front("@");
  if (isGuarded)
    text = text.drop_while([](char c) { return c != ' '; }).trim();
  auto [opcode, operands] = text.rtrim("; ").split(' ');
  if (opcode.empty() || !llvm::all_of(number, llvm::isHexDigit))
    return;
  FlowInstruction &made = code.emplace_back();
  StringRef name = opcode.split('.').first;
  made.isFixed = isFixedOpcode(opcode);
  if (name == "BRA") {
    StringRef label = operands.split("`(").second.split(')').first;
    // A condition may be an operand, too.
    isGuarded |= operands.split('`').first.contains('P');
    branches.emplace_back(code.size() - 1, label);
  }
  made.isLast =
      !isGuarded && (name == "BRA" || name == "EXIT" || name == "RET");
  if (name != "NOP" && name != "BRA")
    used = code.size();
}

std::vector<FlowInstruction> CodeReader::finish() {
  for (auto [number, label] : branches) {
    auto found = labels.find(label);
    if (found == labels.end())
      continue;
    code[number].target = found->second;
    if (found->second != number)
      used = std::max(used, number + 1);
  }
  code.resize(used);
  return std::move(code);
}

/// Reads `text` behind `prefix` up to what is no digit.
static unsigned readBefore(StringRef line, StringRef words) {
  StringRef front = line.substr(0, line.find(words)).rtrim();
  unsigned number = 0;
  front.substr(front.find_last_not_of("0123456789") + 1)
      .getAsInteger(10, number);
  return number;
}

/// Gives `kernels` what `needs` says of them; returns of how many it does.
static unsigned readNeeds(StringRef needs, StringMap<SASSKernel> &kernels) {
  SASSKernel *kernel = nullptr;
  unsigned count = 0;
  for (StringRef line : llvm::split(needs, '\n')) {
    if (line.contains("Compiling entry function '")) {
      auto found = kernels.find(line.split('\'').second.split('\'').first);
      kernel = found == kernels.end() ? nullptr : &found->second;
    } else if (kernel && line.contains("bytes spill stores")) {
      kernel->spilledBytes = readBefore(line, " bytes spill stores") +
                             readBefore(line, " bytes spill loads");
    } else if (kernel && line.contains(" registers")) {
      kernel->registers = readBefore(line, " registers");
      count += kernel->registers != 0;
    }
  }
  return count;
}

Expected<StringMap<SASSKernel>> bsr::gpu::parseMachine(StringRef disassembly,
                                                       StringRef needs) {
  StringMap<SASSKernel> kernels;
  for (StringRef part :
       llvm::drop_begin(llvm::split(disassembly, "\t.section\t"))) {
    if (!part.consume_front(".text."))
      continue;
    CodeReader reader;
    for (StringRef line : llvm::split(part, '\n'))
      reader.read(line);
    kernels[part.split(',').first].instructions = reader.finish();
  }
  if (unsigned count = readNeeds(needs, kernels);
      kernels.empty() || count != kernels.size())
    return createStringError("expected ptxas to say what " +
                             Twine(kernels.size()) +
                             " kernels need, but got it of " + Twine(count));
  return kernels;
}

/// The instructions that `next` reaches from `from`.
template <typename Next>
static std::vector<bool> reach(unsigned from, size_t size, Next next) {
  std::vector<bool> reached(size);
  SmallVector<unsigned> open = {from};
  while (!open.empty())
    next(open.pop_back_val(), [&](unsigned to) {
      if (!reached[to]) {
        reached[to] = true;
        open.push_back(to);
      }
    });
  return reached;
}

/// The outermost loop of each instruction, or 0: where control that leaves it
/// may come back.
static std::vector<unsigned> findLoops(ArrayRef<FlowInstruction> code) {
  auto next = [&](unsigned at, auto visit) {
    if (!code[at].isLast && at + 1 < code.size())
      visit(at + 1);
    if (code[at].target && *code[at].target < code.size())
      visit(*code[at].target);
  };
  std::vector<SmallVector<unsigned, 2>> previous(code.size());
  for (unsigned at : llvm::seq<unsigned>(code.size()))
    next(at, [&](unsigned to) { previous[to].push_back(at); });
  std::vector<unsigned> loops(code.size());
  unsigned count = 0;
  for (unsigned at : llvm::seq<unsigned>(code.size())) {
    // Every loop has a branch to what lies before it.
    if (!code[at].target || *code[at].target > at || loops[at])
      continue;
    std::vector<bool> after = reach(at, code.size(), next);
    if (!after[at])
      continue;
    std::vector<bool> before =
        reach(at, code.size(), [&](unsigned to, auto visit) {
          llvm::for_each(previous[to], visit);
        });
    ++count;
    for (unsigned i : llvm::seq<unsigned>(code.size()))
      if (after[i] && before[i])
        loops[i] = count;
  }
  return loops;
}

namespace {
/// Instructions of some part of a kernel.
struct Extent {
  double all = 0, fixed = 0;
  unsigned loops = 0; ///< that have fixed ones

  double perFixed() const { return all / fixed; }
};
} // namespace

/// Measures the loops of `code` that have fixed instructions, or all of it.
static Extent measure(ArrayRef<FlowInstruction> code, bool inLoops) {
  std::vector<unsigned> loops = findLoops(code);
  llvm::SmallDenseSet<unsigned> counted;
  for (auto [instruction, loop] : llvm::zip_equal(code, loops))
    if (loop && instruction.isFixed)
      counted.insert(loop);
  Extent extent;
  extent.loops = counted.size();
  for (auto [instruction, loop] : llvm::zip_equal(code, loops))
    if (!inLoops || counted.contains(loop)) {
      ++extent.all;
      extent.fixed += instruction.isFixed;
    }
  return extent;
}

double bsr::gpu::getMachineRatio(const ::ptx::Kernel &kernel,
                                 const SASSKernel &machine) {
  std::vector<FlowInstruction> text = readFlow(kernel);
  for (bool inLoops : {true, false}) {
    Extent of = measure(text, inLoops);
    Extent is = measure(machine.instructions, inLoops);
    // A loop that was unrolled is none, or two.
    bool isAlike = !inLoops || of.loops == is.loops;
    if (of.fixed && is.fixed && isAlike)
      return is.perFixed() / of.perFixed();
  }
  return double(machine.instructions.size()) / std::max<size_t>(text.size(), 1);
}
