// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How passes say what they decided, and how a decision can be left out.

#include "bsr/Analysis/Decisions.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Remarks.h"
#include "mlir/IR/Unit.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/Debug.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::decide(StringRef tag, Operation *op) {
  bool isTaken = false;
  op->getContext()->executeAction<DecisionAction>([&] { isTaken = true; }, {op},
                                                  tag);
  if (!isTaken)
    PassRemark::missed(tag, "Skipped", op) << "a debug counter skips this one";
  return isTaken;
}

/// The name of the function that `op` is, or is in.
static StringRef getFunctionName(Operation *op) {
  auto function = dyn_cast<FunctionOpInterface>(op);
  if (!function)
    function = op->getParentOfType<FunctionOpInterface>();
  return function ? function.getName() : StringRef();
}

/// The line of a file that `loc` is or has in it: structured remarks know no
/// other places.
static Location getLine(Location loc) {
  auto line = loc->findInstanceOf<FileLineColLoc>();
  return line ? Location(line) : loc;
}

struct PassRemark::State {
  StringRef pass, name;
  Place place;
  Severity severity;
  Diagnostic sentence;
  remark::detail::InFlightRemark structured;
  SmallVector<remark::detail::Remark::Arg> arguments;
  /// Whether `--debug-only` names the pass.
  bool isTraced = false;

  using Emit = remark::detail::InFlightRemark(Location, remark::RemarkOpts);

  /// What is said at `place` by a diagnostic of severity `text`, and by what
  /// `emit` makes; null if neither is read, and nothing traced.
  static std::unique_ptr<State> create(Emit &emit, StringRef pass,
                                       StringRef name, Place place,
                                       Severity text) {
    remark::detail::InFlightRemark structured;
    if (place.op->getContext()->getRemarkEngine())
      structured = emit(getLine(place.loc),
                        remark::RemarkOpts::name(name).category(pass).function(
                            getFunctionName(place.op)));
    bool isTraced = false;
    DEBUG_WITH_TYPE(pass.str().c_str(), isTraced = true);
    if (!text && !structured && !isTraced)
      return nullptr;
    Diagnostic sentence(place.loc, text.value_or(DiagnosticSeverity::Remark));
    return std::unique_ptr<State>(new State{pass,
                                            name,
                                            place,
                                            text,
                                            std::move(sentence),
                                            std::move(structured),
                                            {},
                                            isTraced});
  }
};

/// Prints a decision as it is made: `[pass] place: name: sentence (key:
/// value)`.
static void trace(StringRef pass, Location loc, StringRef name,
                  StringRef sentence,
                  ArrayRef<remark::detail::Remark::Arg> arguments) {
  raw_ostream &os = llvm::dbgs();
  os << "[" << pass << "] ";
  if (auto line = dyn_cast<FileLineColLoc>(getLine(loc)))
    os << line.getFilename().getValue() << ":" << line.getLine() << ":"
       << line.getColumn();
  else
    loc.print(os);
  os << ": " << name;
  if (!sentence.empty())
    os << ": " << sentence;
  if (!arguments.empty()) {
    os << " (";
    llvm::interleaveComma(arguments, os, [&](const auto &argument) {
      os << argument.key << ": " << argument.val;
    });
    os << ")";
  }
  os << "\n";
}

PassRemark::PassRemark(std::unique_ptr<State> state)
    : state(std::move(state)) {}

PassRemark PassRemark::passed(StringRef pass, StringRef name, Place place,
                              Severity text) {
  return PassRemark(State::create(remark::passed, pass, name, place, text));
}

PassRemark PassRemark::missed(StringRef pass, StringRef name, Place place,
                              Severity text) {
  return PassRemark(State::create(remark::missed, pass, name, place, text));
}

PassRemark PassRemark::failed(StringRef pass, StringRef name, Place place,
                              Severity text) {
  return PassRemark(State::create(remark::failed, pass, name, place, text));
}

PassRemark PassRemark::analysis(StringRef pass, StringRef name, Place place,
                                Severity text) {
  return PassRemark(State::create(remark::analysis, pass, name, place, text));
}

PassRemark::PassRemark(PassRemark &&other) = default;

PassRemark::~PassRemark() {
  if (!state)
    return;
  std::string sentence = state->sentence.str();
  if (state->isTraced)
    trace(state->pass, state->place.loc, state->name, sentence,
          state->arguments);
  if (state->structured) {
    if (!sentence.empty())
      state->structured << StringRef(sentence);
    for (remark::detail::Remark::Arg &argument : state->arguments)
      state->structured << argument;
  }
  if (!state->severity)
    return;
  auto [loc, op, isPrinted] = state->place;
  switch (*state->severity) {
  case DiagnosticSeverity::Error:
    isPrinted ? op->emitError(sentence) : emitError(loc, sentence);
    break;
  case DiagnosticSeverity::Warning:
    isPrinted ? op->emitWarning(sentence) : emitWarning(loc, sentence);
    break;
  default:
    isPrinted ? op->emitRemark(sentence) : emitRemark(loc, sentence);
  }
}

Diagnostic &PassRemark::getSentence() { return state->sentence; }

PassRemark &PassRemark::add(StringRef key, const Twine &value) {
  if (state && (state->structured || state->isTraced))
    state->arguments.emplace_back(key, value.str());
  return *this;
}

PassRemark &PassRemark::add(StringRef key, StringAttr value) {
  return value ? add(key, value.getValue()) : *this;
}
