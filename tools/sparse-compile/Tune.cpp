// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "Tune.h"
#include "Codegen.h"
#include "EmitCode.h"
#include "SampleSession.h"
#include "ScheduleCache.h"
#include "TemporaryFile.h"
#include "WayTimes.h"
#include "bsr/Codegen/CPU/Walks.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Interpreter/Rounding.h"
#include "bsr/Transforms/Clusters/Passes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "support/Hash.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/WithColor.h"
#include "llvm/TargetParser/Host.h"
#include <thread>

using namespace mlir;
using namespace mlir::bsr;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using llvm::formatv;
using Clock = std::chrono::steady_clock;

//===----------------------------------------------------------------------===//
// What is tuned
//===----------------------------------------------------------------------===//

/// The seconds that --tune may measure; nothing if it does not say so.
static std::optional<double> getSeconds(const CommandLine &options) {
  double seconds = 60;
  if (!options.tune.empty() && (StringRef(options.tune).getAsDouble(seconds) ||
                                !(seconds >= 0 && seconds <= 1e6)))
    return std::nullopt;
  return seconds;
}

Error bsr::verifyTuning(Attribute target, const llvm::TargetMachine &machine,
                        const CommandLine &options) {
  if (!options.tune.getNumOccurrences())
    return Error::success();
  if (!getSeconds(options))
    return createStringError(
        "expected --tune to be a number of seconds from 0 to 1000000, but "
        "got '" +
        options.tune + "'");
  if (!isa<CPUAttr>(target))
    return createStringError("expected --tune of a step for processors, whose "
                             "kernels have alternatives, but got one for " +
                             print(target));
  if (isForeign(machine))
    return createStringError("expected --tune of a step for this machine, "
                             "which runs it, but got one for " +
                             machine.getTargetTriple().str());
  if (options.targetCpu != "host" &&
      options.targetCpu != llvm::sys::getHostCPUName())
    return createStringError(
        "expected --tune of a step for this processor, " +
        llvm::sys::getHostCPUName() +
        ", which runs it, but got --target-cpu=" + options.targetCpu);
  return Error::success();
}

/// The kernels of `module` with sparse products without a schedule that may go
/// other ways, those first that compute most in a step.
static SmallVector<TunedKernel> findKernels(ModuleOp module,
                                            cpu::CPUTarget target) {
  SymbolTable symbols(module);
  llvm::MapVector<StringRef, SmallVector<LaunchOp>> launches;
  module.walk(
      [&](LaunchOp launch) { launches[launch.getKernel()].push_back(launch); });
  SmallVector<TunedKernel> kernels;
  for (auto &[name, all] : launches) {
    auto cluster = symbols.lookup<ClusterOp>(name);
    if (!cluster || !hasKernelStep(all.front()))
      continue;
    TunedKernel kernel{cluster, all.front(), int64_t(all.size())};
    if (IntegerAttr flops = attrs::flops.get(cluster))
      kernel.flops = flops.getInt();
    bool hasAlternatives = false;
    for (Operation &op : cluster.getBody().front())
      if (isa<SpMMOp, SDDMMOp>(op) && !attrs::schedule.isOn(&op)) {
        kernel.products.push_back(&op);
        hasAlternatives |= !cpu::getAlternatives(&op, target).empty() ||
                           !cpu::getDistances(&op, target).empty();
      }
    if (hasAlternatives)
      kernels.push_back(std::move(kernel));
  }
  llvm::sort(kernels, [](const TunedKernel &a, const TunedKernel &b) {
    int64_t one = a.flops * a.launches, two = b.flops * b.launches;
    ClusterOp first = a.cluster, second = b.cluster;
    return one == two ? first.getName() < second.getName() : one > two;
  });
  return kernels;
}

/// Lets the products of `kernel` go `way`.
static void apply(TunedKernel &kernel, const Way &way) {
  for (auto [product, schedule] : llvm::zip_equal(kernel.products, way))
    if (schedule)
      attrs::schedule.set(product, schedule);
    else
      attrs::schedule.remove(product);
}

/// The products of `kernel` that are alike, which go one way together.
static SmallVector<SmallVector<size_t>> findAlike(TunedKernel &kernel) {
  auto isAlike = [&](size_t a, size_t b) {
    auto strip = [](Operation *op) {
      NamedAttrList list(op->getAttrDictionary());
      attrs::root.remove(list);
      return list.getDictionary(op->getContext());
    };
    Operation *one = kernel.products[a], *two = kernel.products[b];
    return one->getName() == two->getName() &&
           one->getOperandTypes() == two->getOperandTypes() &&
           one->getResultTypes() == two->getResultTypes() &&
           strip(one) == strip(two);
  };
  SmallVector<SmallVector<size_t>> groups;
  for (size_t i : llvm::seq(kernel.products.size())) {
    auto *group = llvm::find_if(groups, [&](ArrayRef<size_t> members) {
      return isAlike(members.front(), i);
    });
    if (group == groups.end())
      group = &groups.emplace_back();
    group->push_back(i);
  }
  return groups;
}

//===----------------------------------------------------------------------===//
// Measurements
//===----------------------------------------------------------------------===//

namespace {
/// Measures kernels of a step, until there is no time left.
class Tuner {
public:
  Tuner(ModuleOp module, llvm::TargetMachine &machine,
        const llvm::json::Object &compiler, const CommandLine &options)
      : target(cast<CPUAttr>(attrs::target.get(module))), machine(machine),
        compiler(compiler), options(options),
        deadline(Clock::now() +
                 std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(*getSeconds(options)))) {}

  /// The best way of `kernel`, and its times; nothing if there is no time for
  /// that, or if the machine does too many other things.
  Expected<std::optional<TunedWay>> findBest(TunedKernel &kernel);
  /// Whether there is time for one more measurement.
  bool hasTime() const { return Clock::now() + longest < deadline; }

private:
  /// Measures each of `ways`, which go through `kernel` beside the way that the
  /// compiler chooses. False if there is no time for that.
  Expected<bool> measure(TunedKernel &kernel, ArrayRef<Way> ways,
                         WayTimes &times);
  /// Takes the fastest of `ways` for `best`, if it is faster than that, whose
  /// time is a share of `ratio` of the own one. False if there is no time to
  /// find it.
  Expected<bool> improve(TunedKernel &kernel, ArrayRef<Way> ways,
                         TunedWay &best, double &ratio);
  Expected<SampleSession> start(TunedKernel &kernel, ArrayRef<Way> ways);
  Error compile(TunedKernel &kernel, ArrayRef<Way> ways, StringRef library);
  Error compare(TunedKernel &kernel, const SampleSession &session,
                size_t numWays);

  cpu::CPUTarget target;
  llvm::TargetMachine &machine;
  const llvm::json::Object &compiler;
  const CommandLine &options;
  Clock::time_point deadline;
  /// What the longest measurement took.
  Clock::duration longest{0};
};
} // namespace

Error Tuner::compile(TunedKernel &kernel, ArrayRef<Way> ways,
                     StringRef library) {
  std::string text;
  {
    OwningOpRef<ModuleOp> step = createKernelStep(kernel, ways);
    llvm::raw_string_ostream os(text);
    step->print(os);
  }
  // In a context of its own: nobody asked for remarks about it.
  MLIRContext context(kernel.cluster.getContext()->getDialectRegistry(),
                      MLIRContext::Threading::DISABLED);
  OwningOpRef<ModuleOp> step = parseSourceString<ModuleOp>(text, &context);
  if (!step)
    return createStringError(
        "expected the step to compile, but got the errors above");
  PassManager pm(&context);
  ToLLVMOptions pipeline;
  pipeline.targetCpu = machine.getTargetCPU().str();
  pipeline.timers = true;
  pm.addPass(createBSRPlanClusters());
  buildClustersToLLVMPipeline(pm, pipeline);
  if (Error error = run(pm, *step, options))
    return error;
  std::vector<StringRef> features = getRequiredFeatures(machine, *step);
  return emitLibrary(std::move(step), machine, llvm::json::Object(compiler),
                     features, options, library);
}

/// Wrong numbers are not for a table of times: some kernel of the compiler's is
/// wrong, and it may be the one that steps have without --tune.
Error Tuner::compare(TunedKernel &kernel, const SampleSession &session,
                     size_t numWays) {
  for (auto [i, type] : llvm::enumerate(kernel.launch.getResultTypes())) {
    Type element = getElementTypeOrSelf(type);
    std::string prefix = "y" + std::to_string(i) + ".";
    auto name = [&](size_t way) { return prefix + std::to_string(way); };
    for (size_t way = 1; way != numWays; ++way) {
      Expected<bool> areSame = session.areSame(name(0), name(way));
      if (!areSame)
        return areSame.takeError();
      if (*areSame || !isa<FloatType>(element))
        continue;
      auto read = [&](size_t number) -> Expected<std::vector<double>> {
        Expected<tools::NamedArray> array = session.getResult(name(number));
        if (!array)
          return array.takeError();
        std::vector<double> numbers;
        for (interpreter::Number number : array->array.elements)
          numbers.push_back(number.real);
        return numbers;
      };
      Expected<std::vector<double>> own = read(0), other = read(way);
      if (!own || !other)
        return joinErrors(own.takeError(), other.takeError());
      auto sum = element.isF64()
                     ? cast<FloatType>(element)
                     : FloatType(Float32Type::get(element.getContext()));
      std::string difference =
          describeDifference(kernel.cluster.getName(), *own, *other,
                             interpreter::getRoundoff(cast<FloatType>(element)),
                             interpreter::getRoundoff(sum));
      if (!difference.empty())
        return createStringError(difference);
    }
  }
  return Error::success();
}

/// A session of a step of these `ways` that has run once.
Expected<SampleSession> Tuner::start(TunedKernel &kernel, ArrayRef<Way> ways) {
  TemporaryFile library;
  if (Error error = library.create())
    return std::move(error);
  if (Error error = compile(kernel, ways, library.path()))
    return std::move(error);
  Expected<SampleSession> session = SampleSession::create(library.path());
  if (!session)
    return session;
  if (Error error = session->fill(/*bound=*/1))
    return std::move(error);
  if (Error error = session->run())
    return std::move(error);
  return session;
}

Expected<bool> Tuner::measure(TunedKernel &kernel, ArrayRef<Way> ways,
                              WayTimes &times) {
  // What else the machine does disturbs some runs. Long ones need not be many,
  // and where most are disturbed, other kernels have their turn.
  constexpr size_t enoughRuns = 15;
  constexpr std::chrono::seconds enoughTime{2}, mostTime{8};
  Clock::time_point begin = Clock::now();
  if (!hasTime())
    return false;
  // The first launch finds the caches as no other does, and is not measured.
  Way own(kernel.products.size());
  SmallVector<Way> all{own, own};
  llvm::append_range(all, ways);
  all.push_back(own);
  Expected<SampleSession> session = start(kernel, all);
  if (!session) {
    // The step may be none the worse for it.
    llvm::WithColor::warning(llvm::errs(), "sparse-compile")
        << "expected to measure @" << kernel.cluster.getName() << ", but got '"
        << llvm::toString(session.takeError()) << "'\n";
    return false;
  }
  if (Error error = compare(kernel, *session, all.size()))
    return std::move(error);
  Clock::time_point firstRun = Clock::now();
  while (times.getNumRuns() != enoughRuns) {
    bool isEnough = times.getNumRuns() >= WayTimes::fewestRuns;
    Clock::time_point now = Clock::now();
    if (now > deadline || now - firstRun > (isEnough ? enoughTime : mostTime))
      break;
    Expected<SmallVector<int64_t>> run = session->runTimed(wayName);
    if (!run)
      return run.takeError();
    assert(run->size() == all.size() && "each launch is an event");
    times.add(ArrayRef(*run).drop_front());
  }
  longest = std::max(longest, Clock::now() - begin);
  return times.getNumRuns() >= WayTimes::fewestRuns;
}

Expected<bool> Tuner::improve(TunedKernel &kernel, ArrayRef<Way> ways,
                              TunedWay &best, double &ratio) {
  // As many results lie in memory at a time.
  constexpr size_t mostWays = 6;
  while (!ways.empty()) {
    ArrayRef<Way> some = ways.take_front(mostWays);
    ways = ways.drop_front(some.size());
    WayTimes times;
    Expected<bool> isMeasured = measure(kernel, some, times);
    if (!isMeasured || !*isMeasured)
      return isMeasured;
    for (auto [i, way] : llvm::enumerate(some)) {
      double other = times.getRatio(i);
      if (!times.isFaster(i) || other >= ratio)
        continue;
      best.way = way;
      ratio = other;
    }
    best.ownNanoseconds = best.nanoseconds = times.getOwnTime();
  }
  return true;
}

Expected<std::optional<TunedWay>> Tuner::findBest(TunedKernel &kernel) {
  TunedWay found{Way(kernel.products.size())};
  for (const SmallVector<size_t> &group : findAlike(kernel)) {
    double ratio = 1;
    // First the walks and the tiles, then distances of the best.
    for (auto *getOthers : {cpu::getAlternatives, cpu::getDistances}) {
      Operation *product = kernel.products[group.front()];
      apply(kernel, found.way);
      SmallVector<Way> ways;
      for (const ProductSchedule &schedule : getOthers(product, target)) {
        Way &way = ways.emplace_back(found.way);
        for (size_t member : group)
          way[member] = schedule.getAttr(product->getContext());
      }
      apply(kernel, Way(kernel.products.size()));
      Expected<bool> isMeasured = improve(kernel, ways, found, ratio);
      if (!isMeasured)
        return isMeasured.takeError();
      if (!*isMeasured)
        return std::nullopt;
    }
  }
  if (llvm::none_of(found.way, [](DictionaryAttr way) { return !!way; }))
    return found;
  // The fastest of many is partly the luckiest: it is measured again.
  WayTimes times;
  Expected<bool> isMeasured = measure(kernel, found.way, times);
  if (!isMeasured)
    return isMeasured.takeError();
  if (!*isMeasured)
    return std::nullopt;
  found.ownNanoseconds = found.nanoseconds = times.getOwnTime();
  if (times.isFaster(0))
    found.nanoseconds *= times.getRatio(0);
  else
    found.way.assign(kernel.products.size(), nullptr);
  return found;
}

//===----------------------------------------------------------------------===//
// What is said
//===----------------------------------------------------------------------===//

/// What a choice depends on beside the kernel: the compiler, the processor and
/// the threads.
static std::string getKey(const llvm::TargetMachine &machine,
                          const llvm::json::Object &compiler) {
  std::string key;
  llvm::raw_string_ostream os(key);
  os << llvm::json::Value(llvm::json::Object(compiler)) << "\n";
  // A compiler that is worked on has one version for long.
  if (auto program = llvm::MemoryBuffer::getFile("/proc/self/exe"))
    os << sparse_opt::hexadecimal(
              sparse_opt::xxh64((*program)->getBuffer().str()))
       << "\n";
  os << llvm::sys::getHostCPUName() << "\n"
     << machine.getTargetFeatureString() << "\n";
  if (auto info = llvm::MemoryBuffer::getFileAsStream("/proc/cpuinfo")) {
    StringRef rest = (*info)->getBuffer();
    rest = rest.substr(rest.find("model name"));
    os << rest.take_until([](char c) { return c == '\n'; }) << "\n";
  }
  const char *threads = std::getenv("OMP_NUM_THREADS");
  os << (threads ? threads
                 : std::to_string(std::thread::hardware_concurrency()))
     << "\n";
  return key;
}

/// `way` as benchmarks/kernels.py takes it: "gather rows=4 ahead=1".
static std::string describe(const Way &way) {
  std::string text;
  llvm::raw_string_ostream os(text);
  for (DictionaryAttr schedule : way) {
    os << (text.empty() ? "" : ", ");
    if (!schedule) {
      os << "default";
      continue;
    }
    os << cast<StringAttr>(schedule.get("walk")).getValue();
    for (NamedAttribute entry : schedule)
      if (auto number = dyn_cast<IntegerAttr>(entry.getValue()))
        os << " " << entry.getName().strref() << "=" << number.getInt();
  }
  return text;
}

namespace {
/// The table of what was found, in milliseconds.
class Table {
public:
  explicit Table(ModuleOp module) {
    SymbolTable symbols(module);
    module.walk([&](LaunchOp launch) {
      if (auto cluster = symbols.lookup<ClusterOp>(launch.getKernel()))
        if (IntegerAttr flops = attrs::flops.get(cluster))
          flopsOfStep += double(flops.getInt());
    });
  }

  void add(TunedKernel &kernel, const TunedWay &found);
  void print() const;

private:
  double flopsOfStep = 0, gained = 0, own = 0;
  std::string rows;
};
} // namespace

void Table::add(TunedKernel &kernel, const TunedWay &found) {
  auto launches = double(kernel.launches);
  own += launches * found.ownNanoseconds;
  gained += launches * (found.ownNanoseconds - found.nanoseconds);
  std::string name = kernel.cluster.getName().str();
  if (auto kind = attrs::kind.get(kernel.cluster))
    name += ", " + kind.getValue().str();
  llvm::raw_string_ostream(rows) << llvm::format(
      "%-32s %8lld %8.1f %% %10.4f %10.4f %8.1f %%  %s\n", name.c_str(),
      (long long)kernel.launches,
      100 * launches * double(kernel.flops) / std::max(flopsOfStep, 1.0),
      1e-6 * found.ownNanoseconds, 1e-6 * found.nanoseconds,
      100 * (1 - found.nanoseconds / std::max(found.ownNanoseconds, 1.0)),
      describe(found.way).c_str());
}

void Table::print() const {
  if (rows.empty())
    return;
  llvm::errs() << llvm::format("%-32s %8s %10s %10s %10s %10s  %s\n", "kernel",
                               "launches", "operations", "default ms",
                               "tuned ms", "gain", "schedule")
               << rows
               << formatv("tune: {0:f3} of {1:f3} ms a step are gained\n",
                          1e-6 * gained, 1e-6 * own);
}

Error bsr::tune(ModuleOp module, llvm::TargetMachine &machine,
                const llvm::json::Object &compiler,
                const CommandLine &options) {
  Expected<ScheduleCache> cache =
      ScheduleCache::create(getKey(machine, compiler));
  if (!cache)
    return cache.takeError();
  Tuner tuner(module, machine, compiler, options);
  SmallVector<TunedKernel> kernels = findKernels(
      module, cpu::CPUTarget(cast<CPUAttr>(attrs::target.get(module))));
  Table table(module);
  size_t known = 0, measured = 0;
  for (auto [number, kernel] : llvm::enumerate(kernels)) {
    std::optional<TunedWay> found = cache->find(kernel);
    if (found) {
      ++known;
    } else if (!tuner.hasTime()) {
      continue;
    } else {
      llvm::errs() << formatv("tune: kernel {0} of {1}, @{2}\n", number + 1,
                              kernels.size(), kernel.cluster.getName());
      auto best = tuner.findBest(kernel);
      if (!best)
        return best.takeError();
      if (!*best)
        continue;
      found = **best;
      ++measured;
      cache->store(kernel, *found);
    }
    table.add(kernel, *found);
    apply(kernel, found->way);
  }
  table.print();
  llvm::errs() << formatv("tune: {0} of {1} kernels measured, {2} known from "
                          "before, {3} left as they are\n",
                          measured, kernels.size(), known,
                          kernels.size() - measured - known);
  return Error::success();
}
