// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Check.h"

#include "../sparse-run/Arguments.h"
#include "Phases.h"
#include "SampleSession.h"
#include "bsr/Analysis/Step.h"
#include "mlir/IR/Diagnostics.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include <cmath>

using namespace mlir;
using namespace mlir::bsr;
using namespace mlir::bsr::interpreter;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using tools::NamedArray;
using tools::NamedArrays;

//===----------------------------------------------------------------------===//
// What the step means
//===----------------------------------------------------------------------===//

/// Fails for options with which a run needs other processes, or is no whole
/// step.
static Error verifyOptions(const CommandLine &options) {
  StringRef other;
  if (options.dataParallel)
    other = "--data-parallel";
  else if (options.stages)
    other = "--stages";
  else if (options.microBatches != 1)
    other = "--micro-batches";
  else if (options.emit != Emit::Library)
    other = "--emit";
  for (const std::string &mark : options.marks)
    if (isOfAttention(mark))
      other = "a pattern of attention";
  if (!other.empty())
    return createStringError("expected --check of a library that one process "
                             "runs, without imposed attention, but got " +
                             other);
  return Error::success();
}

Expected<StepCheck> StepCheck::create(ModuleOp module,
                                      const CommandLine &options) {
  if (Error error = verifyOptions(options))
    return std::move(error);
  StepCheck check;
  check.bound = module.clone();
  // What there is to say is said when the step itself is lowered.
  ScopedDiagnosticHandler quiet(module.getContext(), [](Diagnostic &said) {
    return success(said.getSeverity() != DiagnosticSeverity::Error);
  });
  ToSparseOptions pipeline;
  setStepOptions(pipeline.step, options);
  if (Error error = lower(*check.bound, options, [&](OpPassManager &pm) {
        buildToBoundPipeline(pm, pipeline);
      }))
    return std::move(error);
  return std::move(check);
}

//===----------------------------------------------------------------------===//
// Interpretations
//===----------------------------------------------------------------------===//

using Results = SmallVector<std::shared_ptr<const Array>>;

namespace {
/// Interprets a step on the arguments of `session`, and says on the standard
/// error what it is at: that may take long.
class Reference {
public:
  Reference(ModuleOp module, func::FuncOp step) : module(module), step(step) {}

  /// Fills `session` with numbers that the step can look up, and interprets it
  /// exactly and with roundings.
  Error interpret(SampleSession &session);

  /// The exact results, and how far off each element may be; NaN where nothing
  /// is known, as of NaN and infinities.
  Results exact;
  SmallVector<std::vector<double>> bounds;

private:
  Expected<Results> call(ArrayRef<Datum> arguments, double scale,
                         uint64_t seed);
  Error fill(SampleSession &session, SmallVector<Datum> &arguments);

  ModuleOp module;
  func::FuncOp step;
  /// Whether a look-up of the last call was outside of its table.
  bool isOutside = false;
};
} // namespace

Expected<Results> Reference::call(ArrayRef<Datum> arguments, double scale,
                                  uint64_t seed) {
  isOutside = false;
  ScopedDiagnosticHandler listen(module.getContext(), [&](Diagnostic &said) {
    isOutside |= said.str() == outsideMessage;
    return success(isOutside);
  });
  Rounding rounding(seed, scale);
  FailureOr<SmallVector<Datum>> results =
      Interpreter(module, &rounding).call(step, arguments);
  if (failed(results))
    return createStringError(
        "expected a step that can be interpreted for --check, but got " +
        std::string(isOutside ? "indices outside of their table"
                              : "the errors above"));
  return llvm::map_to_vector(*results, [](const Datum &datum) {
    return std::get<std::shared_ptr<const Array>>(datum);
  });
}

/// Integers may be indices of any table or numbers of classes: they are made
/// smaller until all are inside.
Error Reference::fill(SampleSession &session, SmallVector<Datum> &arguments) {
  for (int64_t bound = 1024;; bound /= 2) {
    if (Error error = session.fill(bound))
      return error;
    Expected<NamedArrays> arrays = session.getArguments();
    if (!arrays)
      return arrays.takeError();
    auto taken = tools::takeArguments(step, *arrays);
    if (!taken)
      return taken.takeError();
    arguments = std::move(*taken);
    Expected<Results> results = call(arguments, /*scale=*/0, /*seed=*/0);
    if (results) {
      exact = std::move(*results);
      return Error::success();
    }
    if (!isOutside || bound == 1)
      return results.takeError();
    llvm::consumeError(results.takeError());
  }
}

/// How far two elements of a tensor of `type` are apart.
static double getDifference(Type type, Number a, Number b) {
  return isa<FloatType>(getElementTypeOrSelf(type))
             ? std::abs(a.real - b.real)
             : std::abs(double(a.integer) - double(b.integer));
}

/// The median of the finite ones of `numbers`, or 0.
static double getMedian(std::vector<double> numbers) {
  llvm::erase_if(numbers, [](double number) { return !std::isfinite(number); });
  if (numbers.empty())
    return 0;
  auto middle = numbers.begin() + numbers.size() / 2;
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// What is allowed is what scripts/fuzz/rounding.py allows: 32 times what
// roundings did to this element, 8 times what they did to one in the middle,
// for an element's own may cancel by chance, and two roundoffs.
Error Reference::interpret(SampleSession &session) {
  constexpr double scales[] = {1, 1, 1, 4};
  constexpr int count = 1 + std::size(scales);
  auto say = [&](int number) {
    llvm::errs() << "check: interpretation " << number << " of " << count
                 << "\n";
  };
  say(1);
  SmallVector<Datum> arguments;
  if (Error error = fill(session, arguments))
    return error;
  for (const auto &array : exact)
    bounds.emplace_back(array->elements.size(), 0.0);
  for (auto [number, scale] : llvm::enumerate(scales)) {
    say(2 + int(number));
    Expected<Results> results = call(arguments, scale, 1 + number);
    if (!results)
      return results.takeError();
    for (auto [first, other, type, bound] :
         llvm::zip_equal(exact, *results, step.getResultTypes(), bounds))
      for (auto [a, b, most] :
           llvm::zip_equal(first->elements, other->elements, bound)) {
        double off = getDifference(type, a, b);
        most = std::isnan(off) ? NAN : std::max(most, off);
      }
  }
  for (auto [first, type, bound] :
       llvm::zip_equal(exact, step.getResultTypes(), bounds)) {
    auto element = dyn_cast<FloatType>(getElementTypeOrSelf(type));
    if (!element)
      continue;
    double middle = getMedian(bound), roundoff = getRoundoff(element);
    double tiny = llvm::APFloat::getSmallest(element.getFloatSemantics())
                      .convertToDouble();
    for (auto [number, most] : llvm::zip_equal(first->elements, bound))
      most = std::isfinite(number.real)
                 ? 32 * most + 8 * middle +
                       2 * roundoff * std::abs(number.real) + 2 * tiny
                 : NAN;
  }
  return Error::success();
}

//===----------------------------------------------------------------------===//
// The comparison
//===----------------------------------------------------------------------===//

static std::string print(double number) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.6g", number);
  return text;
}

/// Where element `place` of a tensor of `shape` is: "[2, 0]".
static std::string describePlace(ArrayRef<int64_t> shape, int64_t place) {
  SmallVector<std::string> at;
  for (int64_t extent : llvm::reverse(shape)) {
    at.push_back(std::to_string(place % extent));
    place /= extent;
  }
  return "[" + llvm::join(llvm::reverse(at), ", ") + "]";
}

namespace {
struct Comparison {
  int64_t compared = 0, all = 0;
  /// The largest error, of what is allowed.
  double largest = 0;

  /// Compares a result of `type`, which has elements where `isLive`.
  Error add(const std::string &name, Type type, const Array &right,
            const Array &got, ArrayRef<double> bounds,
            llvm::function_ref<bool(int64_t)> isLive);
};
} // namespace

Error Comparison::add(const std::string &name, Type type, const Array &right,
                      const Array &got, ArrayRef<double> bounds,
                      llvm::function_ref<bool(int64_t)> isLive) {
  auto printElement = [&](Number number) {
    return isa<FloatType>(getElementTypeOrSelf(type))
               ? ::print(number.real)
               : std::to_string(number.integer);
  };
  for (int64_t i = 0, e = int64_t(right.elements.size()); i != e; ++i) {
    if (!isLive(i))
      continue;
    ++all;
    double bound = bounds[size_t(i)];
    if (!std::isfinite(bound))
      continue;
    ++compared;
    Number a = got.elements[size_t(i)], b = right.elements[size_t(i)];
    double off = getDifference(type, a, b);
    if (!(off <= bound))
      return createStringError(
          "expected the compiled step to compute what its interpreter does, "
          "but got " +
          printElement(a) + " instead of " + printElement(b) + " in '" + name +
          "' at " + describePlace(right.shape, i) +
          ", where roundings explain " + ::print(bound));
    if (off != 0)
      largest = std::max(largest, off / bound);
  }
  return Error::success();
}

Error StepCheck::run(StringRef library) {
  FailureOr<func::FuncOp> step = getStep(*bound);
  assert(succeeded(step) && "what was compiled is a step");
  Expected<SampleSession> session = SampleSession::create(library);
  if (!session)
    return session.takeError();
  Reference reference(*bound, *step);
  if (Error error = reference.interpret(*session))
    return error;
  if (Error error = session->run())
    return error;
  Comparison comparison;
  SmallVector<BlockArgument> carriers = getCarriers(*step);
  for (auto [i, right] : llvm::enumerate(reference.exact)) {
    if (isScores(*step, unsigned(i)))
      continue;
    std::string name = tools::getResultName(*step, unsigned(i), carriers);
    Expected<NamedArray> got = session->getResult(name);
    if (!got)
      return got.takeError();
    assert(got->array.shape == right->shape && "a buffer is of its result");
    Expected<SmallVector<bool>> live = session->getLiveSlots(name);
    if (!live)
      return live.takeError();
    int64_t perSlot =
        live->empty() ? 1
                      : int64_t(right->elements.size()) / int64_t(live->size());
    auto isLive = [&](int64_t place) {
      return live->empty() || (*live)[size_t(place / perSlot)];
    };
    if (Error error = comparison.add(name, step->getResultTypes()[i], *right,
                                     got->array, reference.bounds[i], isLive))
      return error;
  }
  llvm::errs() << llvm::formatv(
      "check: {0} of {1} elements compared, the largest error {2:f2} of what "
      "roundings explain\n",
      comparison.compared, comparison.all, comparison.largest);
  return Error::success();
}
