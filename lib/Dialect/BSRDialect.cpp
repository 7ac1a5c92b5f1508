// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect, its types and attributes.

#include "DialectInterfaces.h"
#include "StepAttributes.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/BSR.h"
#include "bsr/Dialect/ClusterVerifier.h"
#include "bsr/Dialect/Groups.h"
#include "bsr/Dialect/Rows.h"
#include "bsr/Dialect/Shards.h"
#include "bsr/Dialect/Transfers.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "support/Chips.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/CheckedArithmetic.h"

using namespace mlir;
using namespace mlir::bsr;

/// Parses `<rows>x<cols>`.
static ParseResult parseExtents(AsmParser &parser, int64_t &rows,
                                int64_t &cols) {
  SmallVector<int64_t> dims;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseDimensionList(dims, /*allowDynamic=*/false,
                                /*withTrailingX=*/false))
    return failure();
  if (dims.size() != 2)
    return parser.emitError(loc, "expected 2 extents, but got ") << dims.size();
  rows = dims[0];
  cols = dims[1];
  return success();
}

static void printExtents(AsmPrinter &printer, int64_t rows, int64_t cols) {
  printer << rows << 'x' << cols;
}

static ParseResult parseDensity(AsmParser &parser, FloatAttr &density) {
  double value;
  if (parser.parseFloat(value))
    return failure();
  density = parser.getBuilder().getF64FloatAttr(value);
  return success();
}

static void printDensity(AsmPrinter &printer, FloatAttr density) {
  printer.printFloat(density.getValue());
}

#include "bsr/Dialect/BSROpsDialect.cpp.inc"
#include "bsr/Dialect/BSROpsEnums.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "bsr/Dialect/BSROpsTypes.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "bsr/Dialect/BSROpsAttributes.cpp.inc"

void BSRDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "bsr/Dialect/BSROpsTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "bsr/Dialect/BSROpsAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "bsr/Dialect/BSROps.cpp.inc"
      >();
  addOperations<GroupedMatmulOp, GroupedOuterOp>();
  addOperations<GatherRowsOp, ScatterRowsOp, ScoreRowsOp>();
  addOperations<SendOp, ReceiveOp, ShardOp, UnshardOp>();
  addInterfaces<BSRInlinerInterface, BSRBytecodeInterface>();
  // Each target has its implementation in lib/Codegen.
  declarePromisedInterfaces<TargetAttrInterface, CPUAttr, GPUAttr,
                            ScalarAttr>();
  // lib/Analysis has it.
  declarePromisedInterface<ClusterVerifierInterface, BSRDialect>();
}

Operation *BSRDialect::materializeConstant(OpBuilder &builder, Attribute value,
                                           Type type, Location loc) {
  return arith::ConstantOp::materialize(builder, value, type, loc);
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

LogicalResult PatternType::verify(function_ref<InFlightDiagnostic()> emitError,
                                  int64_t rows, int64_t cols, int64_t blockRows,
                                  int64_t blockCols, int64_t slots) {
  if (rows < 1 || cols < 1)
    return emitError() << "expected a matrix of at least 1x1, but got " << rows
                       << "x" << cols;
  if (blockRows < 1 || blockCols < 1)
    return emitError() << "expected a block of at least 1x1, but got "
                       << blockRows << "x" << blockCols;
  if (rows % blockRows || cols % blockCols)
    return emitError() << "expected matrix " << rows << "x" << cols
                       << " to be a multiple of block " << blockRows << "x"
                       << blockCols << ": pad it or choose another block";
  // No number of entries overflows: that of blocks is not larger.
  if (!llvm::checkedMul(rows, cols))
    return emitError() << "expected a matrix of fewer than 2^63 entries, but "
                          "got "
                       << rows << "x" << cols;
  int64_t blocks = (rows / blockRows) * (cols / blockCols);
  if (blocks > INT32_MAX)
    return emitError() << "expected at most " << INT32_MAX
                       << " blocks (indices have 32 bits), but got " << blocks;
  if (slots < 1 || slots > blocks)
    return emitError() << "expected 1 to " << blocks << " slots, but got "
                       << slots;
  return success();
}

RankedTensorType PatternType::getDenseType(Type elementType,
                                           bool transpose) const {
  if (transpose)
    return RankedTensorType::get({getCols(), getRows()}, elementType);
  return RankedTensorType::get({getRows(), getCols()}, elementType);
}

RankedTensorType PatternType::getValuesType(Type elementType) const {
  return RankedTensorType::get({getSlots(), getBlockRows(), getBlockCols()},
                               elementType);
}

//===----------------------------------------------------------------------===//
// PlanAttr, RootAttr
//===----------------------------------------------------------------------===//

LogicalResult PlanAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               ClusterKind kind, ArrayRef<int64_t> shared) {
  bool isChain = kind == ClusterKind::Chain;
  if (isChain == shared.empty())
    return emitError() << "expected shared loops of a chain and of nothing "
                          "else, but got "
                       << shared.size();
  for (int64_t extent : shared)
    if (extent < 1)
      return emitError()
             << "expected shared loops of at least 1 iteration, but got "
             << extent;
  return success();
}

LogicalResult RootAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t nest, ArrayRef<int64_t> loops, bool,
                               std::optional<int64_t> place) {
  if (nest < 0)
    return emitError() << "expected a nest of 0 or greater, but got " << nest;
  for (int64_t loop : loops)
    if (loop < -1)
      return emitError() << "expected shared loops of 0 or greater, or -1, but "
                            "got "
                         << loop;
  if (place && *place < 0)
    return emitError() << "expected a place of 0 or greater, but got "
                       << *place;
  return success();
}

//===----------------------------------------------------------------------===//
// MarkAttr
//===----------------------------------------------------------------------===//

LogicalResult bsr::verifyDensity(function_ref<InFlightDiagnostic()> emitError,
                                 double density) {
  if (!(density > 0) || density > 1)
    return emitError() << "expected density in (0, 1], but got " << density;
  return success();
}

std::array<RankedTensorType, 3> PatternType::getIndexTypes(View view) const {
  Type i32 = IntegerType::get(getContext(), 32);
  auto slots = RankedTensorType::get({getSlots()}, i32);
  return {RankedTensorType::get({getNumLines(view) + 1}, i32), slots, slots};
}

std::array<StringRef, 3> mlir::bsr::getIndexKinds(View view) {
  if (view == View::Rows)
    return {"row_ptr", "col_idx", "slot"};
  return {"col_ptr", "row_idx", "slot_t"};
}

TargetAttrInterface mlir::bsr::getTarget(Operation *op) {
  auto module = dyn_cast<ModuleOp>(op);
  if (!module)
    module = op->getParentOfType<ModuleOp>();
  auto target = module
                    ? module->getAttrOfType<TargetAttrInterface>(attrs::target)
                    : TargetAttrInterface();
  return target ? target
                : cast<TargetAttrInterface>(CPUAttr::get(op->getContext()));
}

LogicalResult CPUAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                              int64_t vectorBits, int64_t numRegisters,
                              int64_t l1Bytes, int64_t l2Bytes,
                              PairDots /*bf16Dots*/,
                              TileProducts /*bf16Tiles*/) {
  if (vectorBits < 64 || vectorBits > 4096 || !llvm::isPowerOf2_64(vectorBits))
    return emitError() << "expected vector_bits to be a power of 2 from 64 to "
                          "4096, but got "
                       << vectorBits;
  if (numRegisters < 8 || numRegisters > 256)
    return emitError() << "expected num_registers to be 8 to 256, but got "
                       << numRegisters;
  // Memory of work items is on the stack: there is a limit.
  constexpr int64_t least = 4096, most = 16 * 1024 * 1024;
  if (l1Bytes < least || l1Bytes > most)
    return emitError() << "expected l1_bytes to be " << least << " to " << most
                       << ", but got " << l1Bytes;
  if (l2Bytes < l1Bytes || l2Bytes > most)
    return emitError() << "expected l2_bytes to be from l1_bytes, " << l1Bytes
                       << ", to " << most << ", but got " << l2Bytes;
  return success();
}

/// Checks that `value` is 0 or a power of 2 from `least` to `most`.
static LogicalResult verifyTile(function_ref<InFlightDiagnostic()> emitError,
                                StringRef name, int64_t value, int64_t least,
                                int64_t most) {
  if (value == 0 ||
      (value >= least && value <= most && llvm::isPowerOf2_64(value)))
    return success();
  return emitError() << "expected " << name << " to be 0 or a power of 2 from "
                     << least << " to " << most << ", but got " << value;
}

LogicalResult GPUAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                              StringRef chip, int64_t tileOutputs,
                              int64_t tileTokens, int64_t shareOutputs,
                              int64_t shareTokens, bool /*tf32*/) {
  if (failed(verifyTile(emitError, "tile_outputs", tileOutputs, 64, 512)) ||
      failed(verifyTile(emitError, "tile_tokens", tileTokens, 32, 256)) ||
      failed(verifyTile(emitError, "share_outputs", shareOutputs, 1, 8)) ||
      failed(verifyTile(emitError, "share_tokens", shareTokens, 1, 4)))
    return failure();
  if (shareOutputs * shareTokens > 8 || (shareOutputs == 0 && shareTokens != 0))
    return emitError()
           << "expected share_outputs and share_tokens to be at most 8 "
              "together, and share_tokens 0 where share_outputs is, but got "
           << shareOutputs << " and " << shareTokens;
  const nvidia::Chip *known = nvidia::findChip(chip);
  if (!known)
    return emitError() << "expected chip to be " << nvidia::listChips()
                       << ", but got '" << chip << "'";
  if (shareOutputs != 0 && !known->wgmmaRate)
    return emitError() << "expected share_outputs and share_tokens on a chip "
                          "with wgmma, but got '"
                       << chip << "'";
  return success();
}

StringRef GPUAttr::getPTXFeature() const {
  return nvidia::findChip(getChip())->ptxFeature;
}

LogicalResult MarkAttr::verify(function_ref<InFlightDiagnostic()> emitError,
                               int64_t blockRows, int64_t blockCols,
                               FloatAttr density, ArrayRef<MarkDim> dims,
                               ArrayRef<int32_t>, ArrayRef<int32_t>,
                               StringAttr) {
  if (blockRows < 1 || blockCols < 1)
    return emitError() << "expected a block of at least 1x1, but got "
                       << blockRows << "x" << blockCols;
  if (!dims.empty() &&
      (!llvm::is_sorted(dims) || !llvm::is_contained(dims, MarkDim::Row) ||
       !llvm::is_contained(dims, MarkDim::Col))) {
    InFlightDiagnostic error = emitError();
    error << "expected dims to be stacks, then at least one row, then at least "
             "one col, but got ";
    llvm::interleave(
        dims, [&](MarkDim dim) { error << stringifyMarkDim(dim); },
        [&] { error << ","; });
    if (llvm::is_contained(dims, MarkDim::Stack) && !llvm::is_sorted(dims))
      error << ": stack weights along their first dimension";
    return error;
  }
  return verifyDensity(emitError, density.getValueAsDouble());
}

/// The slots of the pattern of a matrix of type `matrix`.
static int64_t getNumSlots(MarkAttr mark, RankedTensorType matrix) {
  if (mark.isStatic())
    return mark.getColIdx().size();
  int64_t blocks = (matrix.getDimSize(0) / mark.getBlockRows()) *
                   (matrix.getDimSize(1) / mark.getBlockCols());
  return std::max<int64_t>(
      std::llround(mark.getDensity().getValueAsDouble() * blocks), 1);
}

LogicalResult MarkAttr::verifyFits(function_ref<InFlightDiagnostic()> emitError,
                                   Type type) const {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getRank() < 2 || !tensor.hasStaticShape() ||
      !isa<FloatType>(tensor.getElementType()))
    return emitError() << "expected a float matrix of static shape to mark, "
                          "but got "
                       << type;
  if (getDims().empty() && tensor.getRank() != 2)
    return emitError() << "expected dims to say what each dimension of " << type
                       << " is, as in dims=stack,row,col for matrices stacked "
                          "along the first, or dims=row,col,col,col for a "
                          "convolution's channels and windows, but got none";
  if (!getDims().empty() &&
      tensor.getRank() != static_cast<int64_t>(getDims().size()))
    return emitError() << "expected dims for each of the " << tensor.getRank()
                       << " dimensions of " << type << ", but got "
                       << getDims().size();
  std::optional<int64_t> entries = 1;
  for (int64_t extent : tensor.getShape())
    if (entries)
      entries = llvm::checkedMul(*entries, extent);
  if (!entries)
    return emitError() << "expected fewer than 2^63 entries, but got " << type;
  RankedTensorType matrix = getMatrixType(tensor);
  int64_t rows = matrix.getDimSize(0), cols = matrix.getDimSize(1);
  if (rows == 1 && cols == 1)
    return emitError() << "expected a matrix of more than one entry to mark, "
                          "but got "
                       << type;
  if (failed(PatternType::verify(emitError, rows, cols, getBlockRows(),
                                 getBlockCols(), getNumSlots(*this, matrix))))
    return failure();
  if (!isStatic())
    return success();
  return verifyRowView(emitError, getPatternType(tensor), getRowPtr(),
                       getColIdx());
}

int64_t MarkAttr::getNumDims(MarkDim dim) const {
  if (getDims().empty())
    return dim != MarkDim::Stack;
  return llvm::count(getDims(), dim);
}

RankedTensorType MarkAttr::getMatrixType(RankedTensorType type) const {
  ArrayRef<int64_t> shape =
      type.getShape().drop_front(getNumDims(MarkDim::Stack));
  int64_t rows = getNumDims(MarkDim::Row);
  return RankedTensorType::get({llvm::product_of(shape.take_front(rows)),
                                llvm::product_of(shape.drop_front(rows))},
                               type.getElementType());
}

MarkAttr MarkAttr::withDims(ArrayRef<MarkDim> dims, StringAttr weight) const {
  return get(getContext(), getBlockRows(), getBlockCols(), getDensity(), dims,
             getRowPtr(), getColIdx(), weight);
}

PatternType MarkAttr::getPatternType(RankedTensorType type) const {
  RankedTensorType matrix = getMatrixType(type);
  return PatternType::get(getContext(), matrix.getDimSize(0),
                          matrix.getDimSize(1), getBlockRows(), getBlockCols(),
                          getNumSlots(*this, matrix));
}
