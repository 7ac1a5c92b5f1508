// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attention and its gradient: what they are made of, what is verified of it,
// and what they answer to passes.

#include "bsr/Dialect/Attention.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace mlir::bsr;

static RankedTensorType getType(Value tensor) {
  return cast<RankedTensorType>(tensor.getType());
}

/// What both operations have, without extents; `next` is the first map that is
/// the bias's or the mask's.
template <typename OpTy>
static void setShared(Attention &attention, OpTy op, unsigned next) {
  SmallVector<AffineMap> maps =
      llvm::to_vector(op.getMaps().template getAsValueRange<AffineMapAttr>());
  attention.op = op;
  attention.q = {op.getQ(), maps[0]};
  attention.k = {op.getK(), maps[1]};
  attention.v = {op.getV(), maps[2]};
  attention.y = {op.getY(), maps[3]};
  if (op.getBias())
    attention.bias = {op.getBias(), maps[next++]};
  if (op.getMask())
    attention.mask = {op.getMask(), maps[next++]};
  if (op.getFactor())
    attention.factor = {op.getFactor(), maps[next++]};
  attention.lse = op.getLse();
  attention.pattern = op.getPattern();
  attention.scale = op.getScale().convertToDouble();
  attention.fill = op.getFill() ? op.getFill()->convertToDouble() : -INFINITY;
  attention.zeroEmpty = op.getZeroEmpty();
  attention.numBatchDims = op.getQ().getType().getRank() - 2;
  attention.extents.assign(maps[0].getNumDims(), 1);
  for (const AttentionTensor &each : {attention.q, attention.k, attention.v})
    for (auto [expr, extent] : llvm::zip_equal(each.map.getResults(),
                                               getType(each.tensor).getShape()))
      attention.extents[cast<AffineDimExpr>(expr).getPosition()] = extent;
}

bsr::Attention::Attention(AttentionOp op) { setShared(*this, op, 4); }

bsr::Attention::Attention(AttentionGradOp op) {
  setShared(*this, op, op.getDbias() ? 9 : 8);
  auto getMap = [&](unsigned number) {
    return cast<AffineMapAttr>(op.getMaps()[number]).getValue();
  };
  dy = {op.getDy(), getMap(4)};
  dq = {op.getDq(), getMap(5)};
  dk = {op.getDk(), getMap(6)};
  dv = {op.getDv(), getMap(7)};
  if (op.getDbias())
    dbias = {op.getDbias(), getMap(8)};
}

bool bsr::Attention::isPlain() const {
  unsigned rank = numBatchDims + 2;
  return !factor && !dbias && k.map.getNumResults() == rank &&
         v.map.getNumResults() == rank &&
         (!dk || dk.map.getNumResults() == rank);
}

std::optional<Attention> bsr::getAttention(Operation *op) {
  if (auto attention = dyn_cast<AttentionOp>(op))
    return Attention(attention);
  if (auto gradient = dyn_cast<AttentionGradOp>(op))
    return Attention(gradient);
  return std::nullopt;
}

SmallVector<Value> bsr::getMappedTensors(Operation *op) {
  Attention attention = *getAttention(op);
  SmallVector<Value> tensors;
  for (const AttentionTensor &tensor :
       {attention.q, attention.k, attention.v, attention.y, attention.dy,
        attention.dq, attention.dk, attention.dv, attention.dbias,
        attention.bias, attention.mask, attention.factor})
    if (tensor)
      tensors.push_back(tensor.tensor);
  return tensors;
}

SmallVector<AffineMap> bsr::getTensorMaps(Operation *op) {
  auto get = [](auto op) {
    return llvm::to_vector(
        op.getMaps().template getAsValueRange<AffineMapAttr>());
  };
  if (auto attention = dyn_cast<AttentionOp>(op))
    return get(attention);
  return get(cast<AttentionGradOp>(op));
}

void bsr::setTensorMaps(Operation *op, ArrayRef<AffineMap> maps) {
  ArrayAttr attr = Builder(op->getContext()).getAffineMapArrayAttr(maps);
  if (auto attention = dyn_cast<AttentionOp>(op))
    return attention.setMapsAttr(attr);
  cast<AttentionGradOp>(op).setMapsAttr(attr);
}

bool AttentionFunction::isValid(Attribute attr) {
  auto function = dyn_cast<DictionaryAttr>(attr);
  if (!function)
    return false;
  auto operands = function.getAs<ArrayAttr>("operands");
  auto isNumber = [&](StringRef name) {
    auto number = function.getAs<FloatAttr>(name);
    return number && number.getType().isF64() && number.getValue().isFinite();
  };
  if (!operands || !isNumber("scale"))
    return false;
  // Those that are there come in this order.
  static constexpr StringRef names[] = {"q",    "k",    "v",   "dy",
                                        "bias", "mask", "kept"};
  ArrayRef<StringRef> left(names);
  bool isKept = false;
  for (Attribute operand : operands) {
    auto name = dyn_cast<StringAttr>(operand);
    bool isRequired = true;
    while (name && !left.empty() && left.front() != name) {
      isRequired &= left.size() <= 4;
      left = left.drop_front();
    }
    if (!name || left.empty() || !isRequired)
      return false;
    isKept |= name == "kept";
    left = left.drop_front();
  }
  return left.size() <= 4 && isKept == isNumber("kept_factor");
}

AttentionFunction::AttentionFunction(DictionaryAttr attr)
    : scale(attr.getAs<FloatAttr>("scale").getValueAsDouble()) {
  for (Attribute operand : attr.getAs<ArrayAttr>("operands"))
    operands.push_back(cast<StringAttr>(operand).getValue());
  if (auto factor = attr.getAs<FloatAttr>("kept_factor"))
    keptFactor = factor.getValueAsDouble();
}

//===----------------------------------------------------------------------===//
// Verifiers
//===----------------------------------------------------------------------===//

namespace {
/// A tensor that is indexed by batch dimensions and two others: a row and a
/// feature, as numbers behind the batch dimensions.
struct Named {
  StringRef name;
  Type type;
  unsigned row, feature;
  /// Whether it may leave out batch dimensions.
  bool isShared = false;
};
} // namespace

/// Checks that `map` has `dims` dimensions and `rank` results.
static LogicalResult verifyMap(Operation *op, StringRef name, AffineMap map,
                               unsigned dims, int64_t rank) {
  if (map.getNumDims() != dims || map.getNumSymbols() != 0 ||
      map.getNumResults() != rank)
    return op->emitOpError("expected a map of ")
           << name << " from " << dims << " dimensions to " << rank
           << ", but got " << AffineMapAttr::get(map);
  return success();
}

/// Checks `tensor`, which is indexed by batch dimensions, a row and a feature,
/// and notes the extents that it is the first to have.
static LogicalResult verifyTensor(Operation *op, const Named &tensor,
                                  AffineMap map, unsigned numBatchDims,
                                  MutableArrayRef<int64_t> extents) {
  auto type = cast<RankedTensorType>(tensor.type);
  if (failed(verifyMap(op, tensor.name, map, extents.size(), type.getRank())))
    return failure();
  llvm::SmallBitVector expected(extents.size());
  expected.set(0, numBatchDims);
  expected.set(numBatchDims + tensor.row);
  expected.set(numBatchDims + tensor.feature);
  llvm::SmallBitVector got(extents.size());
  for (AffineExpr expr : map.getResults())
    if (auto dim = dyn_cast<AffineDimExpr>(expr))
      got.set(dim.getPosition());
  bool isOnce = map.getNumResults() == got.count();
  if (tensor.isShared)
    got.set(0, numBatchDims);
  if (got != expected || !isOnce)
    return op->emitOpError("expected a map of ")
           << tensor.name << " to "
           << (tensor.isShared ? "some batch dimensions"
                               : "the batch dimensions")
           << ", d" << numBatchDims + tensor.row << " and d"
           << numBatchDims + tensor.feature << " in some order, but got "
           << AffineMapAttr::get(map);
  for (auto [expr, extent] :
       llvm::zip_equal(map.getResults(), type.getShape())) {
    unsigned dim = cast<AffineDimExpr>(expr).getPosition();
    if (extents[dim] < 0)
      extents[dim] = extent;
    if (extents[dim] != extent || extent == 0)
      return op->emitOpError("expected ")
             << tensor.name << " to have extent "
             << std::max<int64_t>(extents[dim], 1) << " along d" << dim
             << ", but got " << type;
  }
  return success();
}

/// Checks a bias or a mask, which has some of the dimensions of the scores.
static LogicalResult verifyBroadcast(Operation *op, StringRef name,
                                     Value tensor, AffineMap map,
                                     unsigned numBatchDims,
                                     ArrayRef<int64_t> extents) {
  RankedTensorType type = getType(tensor);
  if (failed(verifyMap(op, name, map, extents.size(), type.getRank())))
    return failure();
  llvm::SmallBitVector seen(extents.size());
  for (auto [expr, extent] :
       llvm::zip_equal(map.getResults(), type.getShape())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    bool isUnit = isa<AffineConstantExpr>(expr) &&
                  cast<AffineConstantExpr>(expr).getValue() == 0 && extent == 1;
    if (isUnit)
      continue;
    if (!dim || dim.getPosition() > numBatchDims + 1 ||
        seen.test(dim.getPosition()))
      return op->emitOpError("expected a map of ")
             << name
             << " to dimensions of the scores, each at most once, or to "
             << "0 where its extent is 1, but got " << AffineMapAttr::get(map)
             << " for " << type;
    seen.set(dim.getPosition());
    if (extents[dim.getPosition()] != extent)
      return op->emitOpError("expected ")
             << name << " to have extent " << extents[dim.getPosition()]
             << " along d" << dim.getPosition() << ", but got " << type;
  }
  return success();
}

template <typename OpTy>
static LogicalResult verifyAttention(OpTy op, ArrayRef<Named> tensors) {
  SmallVector<AffineMap> maps =
      llvm::to_vector(op.getMaps().template getAsValueRange<AffineMapAttr>());
  size_t expected = tensors.size() + (op.getBias() ? 1 : 0) +
                    (op.getMask() ? 1 : 0) + (op.getFactor() ? 1 : 0);
  if (maps.size() != expected)
    return op.emitOpError("expected ")
           << expected << " maps, but got " << maps.size();
  int64_t rank = op.getQ().getType().getRank();
  if (rank < 2)
    return op.emitOpError("expected q of at least 2 dimensions, but got ")
           << op.getQ().getType();
  unsigned numBatchDims = rank - 2;
  SmallVector<int64_t> extents(rank + 2, -1);
  for (auto [number, tensor] : llvm::enumerate(tensors))
    if (failed(verifyTensor(op, tensor, maps[number], numBatchDims, extents)))
      return failure();
  size_t next = tensors.size();
  if (op.getBias() &&
      failed(verifyBroadcast(op, "bias", op.getBias(), maps[next++],
                             numBatchDims, extents)))
    return failure();
  if (op.getMask() &&
      failed(verifyBroadcast(op, "mask", op.getMask(), maps[next++],
                             numBatchDims, extents)))
    return failure();
  if (op.getFactor() &&
      failed(verifyBroadcast(op, "factor", op.getFactor(), maps[next++],
                             numBatchDims, extents)))
    return failure();

  SmallVector<Type> types;
  for (const Named &tensor : tensors)
    types.push_back(getElementTypeOrSelf(tensor.type));
  if (op.getBias())
    types.push_back(getElementTypeOrSelf(op.getBias().getType()));
  if (op.getFactor())
    types.push_back(getElementTypeOrSelf(op.getFactor().getType()));
  if (llvm::any_of(types, [](Type t) { return t.isF16(); }) &&
      llvm::any_of(types, [](Type t) { return t.isBF16(); }))
    return op.emitOpError(
        "expected elements of f16 or of bf16, but got both in one product");
  bool isDouble = llvm::any_of(types, [](Type t) { return t.isF64(); });
  Builder b(op.getContext());
  SmallVector<int64_t> parts{2};
  llvm::append_range(parts, ArrayRef(extents).take_front(numBatchDims + 1));
  auto expectedLse =
      RankedTensorType::get(parts, isDouble ? b.getF64Type() : b.getF32Type());
  if (op.getLse().getType() != expectedLse)
    return op.emitOpError("expected lse of type ")
           << expectedLse << ", but got " << op.getLse().getType();
  if (!op.getScale().isFinite())
    return op.emitOpError("expected a finite scale, but got ")
           << op.getScaleAttr();
  if (op.getFill() && (op.getFill()->isNaN() || (op.getFill()->isInfinity() &&
                                                 !op.getFill()->isNegative())))
    return op.emitOpError("expected a fill below infinity, but got ")
           << op.getFillAttr();
  if (op.getPattern()) {
    PatternType pattern = op.getPattern().getType();
    if (pattern.getRows() != extents[numBatchDims] ||
        pattern.getCols() != extents[numBatchDims + 1])
      return op.emitOpError("expected a pattern of ")
             << extents[numBatchDims] << "x" << extents[numBatchDims + 1]
             << " queries and keys, but got " << pattern;
  }
  return success();
}

// Rows and features of tensors, behind the batch dimensions.
static constexpr unsigned query = 0, key = 1, feature = 2, valueFeature = 3;

LogicalResult AttentionOp::verify() {
  return verifyAttention(*this,
                         {{"q", getQ().getType(), query, feature},
                          {"k", getK().getType(), key, feature, true},
                          {"v", getV().getType(), key, valueFeature, true},
                          {"y", getY().getType(), query, valueFeature}});
}

LogicalResult AttentionGradOp::verify() {
  SmallVector<Named> tensors{
      {"q", getQ().getType(), query, feature},
      {"k", getK().getType(), key, feature, true},
      {"v", getV().getType(), key, valueFeature, true},
      {"y", getY().getType(), query, valueFeature},
      {"dy", getDy().getType(), query, valueFeature},
      {"dq", getDq().getType(), query, feature},
      {"dk", getDk().getType(), key, feature, true},
      {"dv", getDv().getType(), key, valueFeature, true}};
  if (getDbias())
    tensors.push_back({"dbias", getDbias().getType(), query, key, true});
  if (failed(verifyAttention(*this, tensors)))
    return failure();
  Attention attention(*this);
  for (unsigned dim = 0; dim != attention.numBatchDims; ++dim)
    if (attention.dk.has(dim) != attention.dv.has(dim))
      return emitOpError(
                 "expected dk and dv to have the same batch dimensions, "
                 "but got d")
             << dim << " in one of them";
  if (getDbias() && getElementTypeOrSelf(getDbias().getType()) !=
                        getElementTypeOrSelf(getLse().getType()))
    return emitOpError("expected dbias of elements as lse has, but got ")
           << getDbias().getType();
  return success();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// The operations of `numProducts` products over the features of queries and
/// keys and `numValueProducts` over those of values, for all stored blocks.
static int64_t countFlops(const Attention &attention, int64_t numProducts,
                          int64_t numValueProducts) {
  int64_t scores = attention.getQueries() * attention.getKeys();
  if (attention.pattern) {
    PatternType pattern = attention.pattern.getType();
    scores =
        pattern.getSlots() * pattern.getBlockRows() * pattern.getBlockCols();
  }
  for (int64_t extent : attention.getBatch())
    scores *= extent;
  return 2 * scores *
         (numProducts * attention.getFeatures() +
          numValueProducts * attention.getValueFeatures());
}

StringRef AttentionOp::getWorkKind() { return "attention"; }
int64_t AttentionOp::getFlops() { return countFlops(Attention(*this), 1, 1); }
std::optional<View> AttentionOp::getLineView() {
  return getPattern() ? std::optional(View::Rows) : std::nullopt;
}

StringRef AttentionGradOp::getWorkKind() { return "attention_grad"; }
int64_t AttentionGradOp::getFlops() {
  return countFlops(Attention(*this), 3, 2);
}
std::optional<View> AttentionGradOp::getLineView() {
  return getPattern() ? std::optional(View::Columns) : std::nullopt;
}
