// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "KernelStep.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Schedules.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mlir::bsr;

bool bsr::hasKernelStep(LaunchOp launch) {
  return llvm::all_of(launch.getInputs(), [](Value input) {
    return isa<RankedTensorType, IndexType>(input.getType()) ||
           isa<BlockArgument>(input) ||
           input.getDefiningOp<ConstantPatternOp>();
  });
}

namespace {
/// Builds a step of one kernel.
class KernelStepBuilder {
public:
  explicit KernelStepBuilder(TunedKernel &kernel)
      : kernel(kernel), b(kernel.cluster.getContext()), loc(b.getUnknownLoc()),
        module(ModuleOp::create(loc)) {
    auto source = kernel.cluster->getParentOfType<ModuleOp>();
    if (auto target = attrs::target.get(source))
      attrs::target.set(*module, target);
    if (auto panels = attrs::panels.get(kernel.launch))
      cut.append(panels.asArrayRef().begin(), panels.asArrayRef().end());
  }

  OwningOpRef<ModuleOp> build(ArrayRef<Way> ways);

private:
  bool isCut(size_t operand) const {
    return llvm::is_contained(cut, int64_t(operand));
  }
  /// Adds an argument that is called `name`, and returns its number.
  unsigned addArgument(Type type, const Twine &name);
  void addArguments();
  /// The arguments, cut in panels where the kernel takes them so.
  void createInputs(ValueRange arguments);
  /// A cluster `name` of `kernel` that goes `way`.
  void createCluster(const Way &way, const Twine &name);
  /// Copies `from`, which is cut or will be, to a tensor that lies in the other
  /// way.
  Value createCopy(Value from, bool cuts);
  LaunchOp createLaunch(StringRef name, ValueRange inputs, TypeRange results,
                        ArrayRef<int64_t> panels);
  void addResult(Value value, const Twine &name);

  TunedKernel &kernel;
  OpBuilder b;
  Location loc;
  OwningOpRef<ModuleOp> module;
  SmallVector<int64_t> cut;
  SmallVector<Type> types;
  SmallVector<NamedAttrList> argumentAttrs;
  /// Of each input of the launch, its argument; -1 for one without.
  SmallVector<int64_t> numbers;
  SmallVector<Value> inputs;
  SmallVector<Value> results;
  SmallVector<Attribute> resultNames;
  DenseMap<Type, StringAttr> copies;
};
} // namespace

unsigned KernelStepBuilder::addArgument(Type type, const Twine &name) {
  types.push_back(type);
  attrs::name.set(argumentAttrs.emplace_back(), b.getStringAttr(name));
  return types.size() - 1;
}

void KernelStepBuilder::addArguments() {
  for (auto [i, input] : llvm::enumerate(kernel.launch.getInputs())) {
    bool hasArgument = isa<RankedTensorType>(input.getType()) ||
                       (isa<PatternType>(input.getType()) &&
                        !input.getDefiningOp<ConstantPatternOp>());
    numbers.push_back(
        hasArgument ? int64_t(addArgument(input.getType(), "x" + Twine(i)))
                    : -1);
  }
  // The runtime knows a pattern by its weight: one that the kernel reads, or
  // one that nobody does.
  for (unsigned i = 0, e = types.size(); i != e; ++i) {
    auto pattern = dyn_cast<PatternType>(types[i]);
    if (!pattern)
      continue;
    attrs::role.set(argumentAttrs[i], b.getStringAttr("pattern"));
    ArrayRef<int64_t> shape = pattern.getValuesType(b.getF32Type()).getShape();
    unsigned weight = 0;
    for (; weight != types.size(); ++weight) {
      auto tensor = dyn_cast<RankedTensorType>(types[weight]);
      if (tensor && tensor.getShape() == shape &&
          isa<FloatType>(tensor.getElementType()) &&
          !argumentAttrs[weight].get(attrs::pattern))
        break;
    }
    if (weight == types.size())
      addArgument(pattern.getValuesType(b.getF32Type()), "");
    Attribute name = argumentAttrs[i].get(attrs::name);
    argumentAttrs[weight].set(attrs::name, name);
    attrs::pattern.set(argumentAttrs[weight], b.getI64IntegerAttr(i));
  }
}

LaunchOp KernelStepBuilder::createLaunch(StringRef name, ValueRange operands,
                                         TypeRange resultTypes,
                                         ArrayRef<int64_t> panels) {
  SmallVector<Value> inits;
  for (Type type : resultTypes) {
    auto tensor = cast<RankedTensorType>(type);
    inits.push_back(tensor::EmptyOp::create(b, loc, tensor.getShape(),
                                            tensor.getElementType()));
  }
  auto launch = LaunchOp::create(b, loc, resultTypes,
                                 FlatSymbolRefAttr::get(b.getContext(), name),
                                 operands, inits, b.getDenseI64ArrayAttr({}));
  if (!panels.empty())
    attrs::panels.set(launch, b.getDenseI64ArrayAttr(panels));
  return launch;
}

Value KernelStepBuilder::createCopy(Value from, bool cuts) {
  auto type = cast<RankedTensorType>(from.getType());
  StringAttr &name = copies[type];
  if (!name) {
    name = b.getStringAttr("copy_" + Twine(copies.size()));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module->getBody());
    auto cluster = ClusterOp::create(b, loc, name.getValue(),
                                     b.getFunctionType({type}, {type}));
    Block &body = cluster.getBody().front();
    b.setInsertionPointToStart(&body);
    Value init =
        tensor::EmptyOp::create(b, loc, type.getShape(), type.getElementType());
    AffineMap map = b.getMultiDimIdentityMap(type.getRank());
    SmallVector<utils::IteratorType> loops(type.getRank(),
                                           utils::IteratorType::parallel);
    auto copy = linalg::GenericOp::create(
        b, loc, type, body.getArgument(0), init, ArrayRef{map, map}, loops,
        [](OpBuilder &b, Location loc, ValueRange numbers) {
          linalg::YieldOp::create(b, loc, numbers.front());
        });
    attrs::lanes.set(copy, b.getUnitAttr());
    YieldOp::create(b, loc, copy.getResults());
  }
  return createLaunch(name, from, type, int64_t(cuts)).getResult(0);
}

void KernelStepBuilder::createInputs(ValueRange arguments) {
  for (auto [i, input] : llvm::enumerate(kernel.launch.getInputs())) {
    if (numbers[i] >= 0)
      inputs.push_back(isCut(i)
                           ? createCopy(arguments[numbers[i]], /*cuts=*/true)
                           : arguments[numbers[i]]);
    else if (Operation *constant = input.getDefiningOp<ConstantPatternOp>())
      inputs.push_back(b.clone(*constant)->getResult(0));
    else
      inputs.push_back(arith::ConstantIndexOp::create(b, loc, 0));
  }
}

void KernelStepBuilder::createCluster(const Way &way, const Twine &name) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(module->getBody());
  IRMapping mapping;
  auto cluster = cast<ClusterOp>(b.clone(*kernel.cluster, mapping));
  cluster.setSymName(name.str());
  for (auto [product, schedule] : llvm::zip_equal(kernel.products, way))
    if (schedule)
      attrs::schedule.set(mapping.lookup(product), schedule);
}

void KernelStepBuilder::addResult(Value value, const Twine &name) {
  results.push_back(value);
  resultNames.push_back(b.getStringAttr(name));
}

OwningOpRef<ModuleOp> KernelStepBuilder::build(ArrayRef<Way> ways) {
  addArguments();
  b.setInsertionPointToEnd(module->getBody());
  auto step =
      func::FuncOp::create(b, loc, "kernel", b.getFunctionType(types, {}));
  for (auto [i, list] : llvm::enumerate(argumentAttrs))
    step.setArgAttrs(unsigned(i), list.getDictionary(b.getContext()));
  b.setInsertionPointToStart(step.addEntryBlock());
  createInputs(step.getArguments());
  SmallVector<LaunchOp> launches;
  for (auto [j, way] : llvm::enumerate(ways)) {
    std::string name = (wayName + Twine(j)).str();
    createCluster(way, name);
    launches.push_back(
        createLaunch(name, inputs, kernel.launch.getResultTypes(), cut));
  }
  // Behind all launches, so that these follow one another.
  for (auto [j, launch] : llvm::enumerate(launches))
    for (auto [i, result] : llvm::enumerate(launch.getResults()))
      addResult(isCut(inputs.size() + i) ? createCopy(result, /*cuts=*/false)
                                         : Value(result),
                "y" + Twine(i) + "." + Twine(j));
  // What is read later is not written over: the last launch is as the others.
  for (auto [i, input] : llvm::enumerate(inputs))
    if (isCut(i))
      addResult(createCopy(input, /*cuts=*/false), "z" + Twine(i));
  func::ReturnOp::create(b, loc, results);
  step.setFunctionType(
      b.getFunctionType(types, TypeRange(ValueRange(results))));
  for (auto [i, name] : llvm::enumerate(resultNames))
    attrs::name.setOfResult(step, unsigned(i), cast<StringAttr>(name));
  return std::move(module);
}

OwningOpRef<ModuleOp> bsr::createKernelStep(TunedKernel &kernel,
                                            ArrayRef<Way> ways) {
  return KernelStepBuilder(kernel).build(ways);
}
