// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How passes say what they decided, and how a decision can be left out.

#ifndef BSR_ANALYSIS_DECISIONS_H
#define BSR_ANALYSIS_DECISIONS_H

#include "mlir/IR/Action.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/OpDefinition.h"

namespace mlir::bsr {

/// A decision that the step computes the same without, but slower.
/// `--mlir-debug-counter` counts and skips decisions by their tag.
class DecisionAction : public tracing::Action {
public:
  DecisionAction(ArrayRef<IRUnit> units, StringRef tag)
      : Action(TypeID::get<DecisionAction>(), units), tag(tag) {}

  static bool classof(const Action *action) {
    return action->getActionID() == TypeID::get<DecisionAction>();
  }
  StringRef getTag() const override { return tag; }

private:
  StringRef tag;
};

/// Whether what `tag` names is to be done to `op`: it is, unless the context's
/// action handler skips it, which a remark of the category `tag` says.
bool decide(StringRef tag, Operation *op);

/// A remark of a pass, which is a diagnostic for people, if a severity is
/// given, and one of MLIR's structured remarks (`--remarks-filter`) for
/// programs. What is streamed is the sentence of both; `add` adds arguments to
/// the second. If neither is wanted, nothing is formatted. Emitted at the end
/// of its life.
class PassRemark {
public:
  /// Where a remark is.
  struct Place {
    /// At `op`; where diagnostics print operations, the text has this one.
    Place(Operation *op) : loc(op->getLoc()), op(op), isPrinted(true) {}
    Place(OpState op) : Place(op.getOperation()) {}
    /// At `loc`, in or of `op`.
    Place(Location loc, Operation *op) : loc(loc), op(op), isPrinted(false) {}

    Location loc;
    Operation *op;
    bool isPrinted;
  };
  using Severity = std::optional<DiagnosticSeverity>;
  static Severity remarkIf(bool isWanted) {
    return isWanted ? Severity(DiagnosticSeverity::Remark) : std::nullopt;
  }

  /// Something was done, was not done although it would pay, was refused, or is
  /// known. `pass` is the argument of the pass, `name` what was decided.
  static PassRemark passed(StringRef pass, StringRef name, Place place,
                           Severity text = std::nullopt);
  static PassRemark missed(StringRef pass, StringRef name, Place place,
                           Severity text = std::nullopt);
  static PassRemark failed(StringRef pass, StringRef name, Place place,
                           Severity text = std::nullopt);
  static PassRemark analysis(StringRef pass, StringRef name, Place place,
                             Severity text = std::nullopt);

  PassRemark(PassRemark &&other);
  ~PassRemark();

  /// Whether anybody will read it.
  explicit operator bool() const { return state != nullptr; }

  template <typename T>
  PassRemark &operator<<(T &&value) {
    if (state)
      getSentence() << std::forward<T>(value);
    return *this;
  }
  PassRemark &add(StringRef key, const Twine &value);
  PassRemark &add(StringRef key, int64_t value) {
    return add(key, Twine(value));
  }
  PassRemark &add(StringRef key, OperationName value) {
    return add(key, value.getStringRef());
  }
  PassRemark &add(StringRef key, StringAttr value);

private:
  struct State;

  explicit PassRemark(std::unique_ptr<State> state);
  Diagnostic &getSentence();

  std::unique_ptr<State> state;
};

} // namespace mlir::bsr

#endif // BSR_ANALYSIS_DECISIONS_H
