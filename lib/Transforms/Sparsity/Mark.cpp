// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Marks weights of a training step as block-sparse, by name, and their
// optimizer moments and masks with them.

#include "PatternFile.h"
#include "WeightState.h"
#include "bsr/Analysis/EntryMaps.h"
#include "bsr/Analysis/Step.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Transforms/Sparsity/Passes.h"
#include "llvm/Support/Regex.h"

namespace mlir::bsr {
#define GEN_PASS_DEF_BSRMARK
#include "bsr/Transforms/Sparsity/Passes.h.inc"
} // namespace mlir::bsr

using namespace mlir;
using namespace mlir::bsr;

/// Where `argument` is: its own place in the text, or that of the step in the
/// user's program, which front ends give the function alone.
static Location getPlace(BlockArgument argument) {
  auto getFile = [](Location loc) {
    auto place = loc->findInstanceOf<FileLineColLoc>();
    return place ? place.getFilename() : StringAttr();
  };
  Operation *func = argument.getOwner()->getParentOp();
  StringAttr text = getFile(func->getParentOp()->getLoc());
  return getFile(argument.getLoc()) == text && getFile(func->getLoc()) != text
             ? func->getLoc()
             : argument.getLoc();
}

/// Refuses an escaped letter: in other dialects it is a class like \d, in that
/// of POSIX the letter itself, which is not what is meant.
static LogicalResult checkRegex(Location loc, StringRef option,
                                StringRef text) {
  std::string reason;
  if (!text.empty() && !llvm::Regex(text).isValid(reason))
    return emitError(loc) << "expected option " << option
                          << " to be a regular expression, but got '" << text
                          << "': " << reason;
  for (size_t i = 0; i + 1 < text.size(); i += text[i] == '\\' ? 2 : 1)
    if (text[i] == '\\' && llvm::isAlpha(text[i + 1]))
      return emitError(loc)
             << "expected option " << option
             << " to be an extended regular expression of POSIX, but got '"
             << text.substr(i, 2) << "': write a set like [0-9] or [a-z_]";
  return success();
}

namespace {
struct Mark : bsr::impl::BSRMarkBase<Mark> {
  using Base::Base;

  LogicalResult initialize(MLIRContext *context) override {
    Location loc = UnknownLoc::get(context);
    if (match.empty())
      return emitError(loc) << "expected option match to be a regular "
                               "expression, but got ''";
    if (failed(checkRegex(loc, "match", match)) ||
        failed(checkRegex(loc, "mask", mask)))
      return failure();
    auto [rows, cols] = StringRef(block).split('x');
    if (!block.empty() &&
        (rows.getAsInteger(10, blockRows) || cols.getAsInteger(10, blockCols)))
      return emitError(loc)
             << "expected option block to be <rows>x<columns>, but got '"
             << block << "'";
    if (!density.empty() && StringRef(density).getAsDouble(share))
      return emitError(loc) << "expected option density to be a number, but "
                               "got '"
                            << density << "'";
    if (failed(readDims(loc)))
      return failure();
    if (!pattern.empty())
      return readPattern(context);
    return MarkAttr::verify([&] { return emitError(loc); }, blockRows,
                            blockCols, Builder(context).getF64FloatAttr(share),
                            kinds, {}, {}, {});
  }

  /// Reads the option `dims`.
  LogicalResult readDims(Location loc) {
    kinds.clear();
    if (dims.empty())
      return success();
    for (StringRef name : llvm::split(StringRef(dims), ',')) {
      std::optional<MarkDim> kind = symbolizeMarkDim(name);
      if (!kind)
        return emitError(loc) << "expected option dims to list stack, row or "
                                 "col for each dimension, but got '"
                              << dims << "'";
      kinds.push_back(*kind);
    }
    return success();
  }

  /// Takes block and density from the pattern file.
  LogicalResult readPattern(MLIRContext *context) {
    auto error = [&]() -> InFlightDiagnostic {
      return emitError(UnknownLoc::get(context), "pattern file '")
             << pattern << "': ";
    };
    if (!density.empty())
      return error() << "expected no option density beside it, but got "
                     << density;
    auto read = readPatternFile(context, pattern, error);
    if (failed(read))
      return failure();
    PatternType type = read->type;
    if (!block.empty() &&
        (type.getBlockRows() != blockRows || type.getBlockCols() != blockCols))
      return error() << "expected blocks of " << block << ", but got "
                     << type.getBlockRows() << "x" << type.getBlockCols();
    blockRows = type.getBlockRows();
    blockCols = type.getBlockCols();
    share = static_cast<double>(type.getSlots()) /
            (type.getGridRows() * type.getGridCols());
    file = std::move(*read);
    return MarkAttr::verify(error, blockRows, blockCols,
                            Builder(context).getF64FloatAttr(share), kinds, {},
                            {}, {});
  }

  void runOnOperation() override {
    SmallVector<StringRef> names;
    unsigned matches = 0;
    auto run = [&](func::FuncOp func) { return mark(func, names, matches); };
    if (failed(forEachBody(getOperation(), run)))
      return signalPassFailure();
    if (matches || isUnused())
      return;
    InFlightDiagnostic error =
        emitError(getOperation().getLoc(), "expected '")
        << match << "' to match the bsr.name of a weight, but got no match in "
        << names.size() << " names";
    addNearest(error, names);
    signalPassFailure();
  }

  /// True if a step says that the program has a name that matches and the step
  /// does not use it; warns then.
  bool isUnused() {
    bool found = false;
    for (auto func : getOperation().getOps<func::FuncOp>()) {
      auto names = attrs::unused.get(func);
      if (!names)
        continue;
      for (auto name : names.getAsRange<StringAttr>()) {
        if (!llvm::Regex(match).match(name))
          continue;
        emitWarning(func.getLoc(), "expected the step to use the weight ")
            << name << ", which '" << match
            << "' matches, but got none that does";
        found = true;
      }
    }
    return found;
  }

  /// Adds those of `names` to `error` that are most like the option `match`.
  void addNearest(InFlightDiagnostic &error, ArrayRef<StringRef> names) {
    SmallVector<std::pair<unsigned, StringRef>> nearest;
    for (StringRef name : names)
      nearest.emplace_back(name.edit_distance(match), name);
    llvm::sort(nearest);
    constexpr size_t most = 3;
    for (auto [index, pair] :
         llvm::enumerate(ArrayRef(nearest).take_front(most)))
      error << (index ? ", '" : ": the nearest are '") << pair.second << "'";
  }

  /// Marks the weights of `func`; adds to the names of arguments that may be
  /// weights and to the number of those that match.
  LogicalResult mark(func::FuncOp func, SmallVectorImpl<StringRef> &names,
                     unsigned &matches) {
    llvm::Regex regex(match);
    SmallVector<unsigned> weights;
    for (unsigned arg : llvm::seq(func.getNumArguments())) {
      StringAttr name = getArgName(func, arg);
      if (!name || (!attentionMask && attrs::role.ofArg(func, arg) &&
                    !hasRole(func, arg, "param")))
        continue;
      names.push_back(name);
      if (!regex.match(name))
        continue;
      ++matches;
      if (!attrs::mark.ofArg(func, arg) && !attrs::mask.ofArg(func, arg))
        weights.push_back(arg);
    }
    if (!weights.empty() && failed(getReturn(func)))
      return failure();

    llvm::Regex maskRegex(mask);
    auto isMask = [&](unsigned arg) {
      StringAttr name = getArgName(func, arg);
      return !mask.empty() && name && maskRegex.match(name) &&
             !llvm::is_contained(weights, arg);
    };
    // What matches and copies what matches follows it.
    SmallVector<unsigned> originals =
        llvm::filter_to_vector(weights, [&](unsigned arg) {
          return !findCopied(func, arg, weights, isMask);
        });
    weights = std::move(originals);
    for (unsigned weight : weights) {
      StringAttr name = getArgName(func, weight);
      Type type = func.getArgumentTypes()[weight];
      auto error = [&] {
        return emitError(getPlace(func.getArgument(weight)), "argument ")
               << name << ": ";
      };
      auto get = [&](ArrayRef<int32_t> rowPtr, ArrayRef<int32_t> colIdx) {
        return MarkAttr::get(&getContext(), blockRows, blockCols,
                             Builder(&getContext()).getF64FloatAttr(share),
                             kinds, rowPtr, colIdx, name);
      };
      MarkAttr attr = get({}, {});
      if (failed(attr.verifyFits(error, type)))
        return failure();
      if (file.type) {
        auto matrix = attr.getMatrixType(cast<RankedTensorType>(type));
        if (matrix != file.type.getDenseType(matrix.getElementType()))
          return error() << "expected a matrix of " << file.type.getRows()
                         << "x" << file.type.getCols() << ", as pattern file '"
                         << pattern << "' says, but got " << type;
        attr = get(file.rowPtr, file.colIdx);
      }
      attrs::mark.setOfArg(func, weight, attr);
      ++numWeights;
      for (unsigned moment : getMoments(func, weight, isMask)) {
        if (llvm::is_contained(weights, moment))
          return emitError(func.getLoc(), "expected '")
                 << match << "' to match weights only, but got "
                 << getArgName(func, moment) << ", a moment of " << name
                 << ": moments follow their weight";
        if (auto other = attrs::mark.ofArg(func, moment))
          return emitError(func.getLoc(), "expected moment ")
                 << getArgName(func, moment)
                 << " to follow one weight, but got " << other.getWeight()
                 << " and " << name;
        attrs::mark.setOfArg(func, moment, attr);
        ++numMoments;
      }
    }
    markCopies(func, weights, isMask);
    if (weights.empty())
      return success();
    return markMasks(func, weights, isMask);
  }

  /// Marks the copies of `weights` that the optimizer keeps. Warns of what it
  /// combines with a weight that is neither this nor a moment.
  void markCopies(func::FuncOp func, ArrayRef<unsigned> weights,
                  function_ref<bool(unsigned)> isMask) {
    for (unsigned arg : llvm::seq(func.getNumArguments())) {
      if (attrs::mark.ofArg(func, arg) || !hasRole(func, arg, "param"))
        continue;
      if (auto weight = findCopied(func, arg, weights, isMask)) {
        attrs::mark.setOfArg(func, arg, attrs::mark.ofArg(func, *weight));
        ++numMoments;
      }
    }
    auto kept = llvm::filter_to_vector(
        llvm::seq(func.getNumArguments()), [&](unsigned arg) {
          return !attrs::mark.ofArg(func, arg) && isKept(func, arg, isMask);
        });
    if (kept.empty())
      return;
    for (unsigned weight : weights) {
      SmallVector<unsigned> moments = getMoments(func, weight, isMask);
      for (unsigned arg : kept) {
        if (attrs::mark.ofArg(func, arg) || !isState(func, arg, weight, isMask))
          continue;
        if (isCopy(func, arg, weight, moments)) {
          attrs::mark.setOfArg(func, arg, attrs::mark.ofArg(func, weight));
          ++numMoments;
          continue;
        }
        bool isCombined = false;
        for (Operation *user : func.getArgument(arg).getUsers())
          if (isEntryWise(user) && user->getNumResults())
            walkEntries(user->getResult(0), [&](Value read, bool) {
              isCombined |= read == func.getArgument(weight);
            });
        if (isCombined)
          emitWarning(getPlace(func.getArgument(arg)), "expected ")
              << getArgName(func, arg)
              << ", which the step combines with the weight "
              << getArgName(func, weight)
              << " entry by entry, to be a moment, a copy or a mask of it, but "
                 "got another use: it stays dense";
      }
    }
  }

  /// Marks the masks of `weights`, arguments of `func`; an error if the option
  /// asks for masks and there are none, or if a mask, of this run or one
  /// before, is one of several weights.
  LogicalResult markMasks(func::FuncOp func, ArrayRef<unsigned> weights,
                          function_ref<bool(unsigned)> isMask) {
    // A weight is marked with its own name.
    auto isWeight = [&](BlockArgument arg) {
      auto mark = attrs::mark.ofArg(func, arg.getArgNumber());
      return mark && mark.getWeight() == getArgName(func, arg.getArgNumber()) &&
             (!attrs::role.ofArg(func, arg.getArgNumber()) ||
              hasRole(func, arg.getArgNumber(), "param"));
    };
    unsigned found = 0;
    for (BlockArgument arg : func.getArguments()) {
      auto type = dyn_cast<RankedTensorType>(arg.getType());
      auto known = attrs::mask.ofArg(func, arg.getArgNumber());
      if (!(known || isMask(arg.getArgNumber())) || !type ||
          !type.hasStaticShape())
        continue;
      BlockArgument weight;
      bool transpose = false;
      StringAttr name = known ? known.getWeight() : StringAttr();
      for (auto [masked, swapped] : getMasked(arg)) {
        if (masked.getOwner() != arg.getOwner() || !isWeight(masked))
          continue;
        StringAttr other = getArgName(func, masked.getArgNumber());
        if (name && name != other)
          return emitError(func.getLoc(), "expected mask ")
                 << getArgName(func, arg.getArgNumber())
                 << " to go with one weight, but got " << name << " and "
                 << other;
        name = other;
        weight = masked;
        transpose = swapped;
      }
      if (known || !weight ||
          !llvm::is_contained(weights, weight.getArgNumber()))
        continue;
      unsigned stacks = llvm::count(kinds, MarkDim::Stack);
      auto weightType = cast<RankedTensorType>(weight.getType());
      if (stacks && (type.getRank() != weightType.getRank() ||
                     type.getShape().take_front(stacks) !=
                         weightType.getShape().take_front(stacks)))
        return emitError(func.getLoc(), "expected mask ")
               << getArgName(func, arg.getArgNumber())
               << " to have a matrix for each of the stack " << name << " ("
               << weightType << "), but got " << type;
      attrs::mask.setOfArg(func, arg.getArgNumber(),
                           MaskAttr::get(&getContext(), name, transpose));
      ++numMasks;
      ++found;
    }
    if (mask.empty() || found)
      return success();
    return emitError(func.getLoc(), "expected '")
           << mask
           << "' to match the bsr.name of an argument that is multiplied with "
              "a weight entry by entry, but got none";
  }

  int64_t blockRows = 16, blockCols = 16;
  double share = 0.1;
  /// What each dimension is; those of a matrix if empty.
  SmallVector<MarkDim> kinds;
  /// What the pattern file holds, if there is one.
  StaticPattern file;
};
} // namespace
