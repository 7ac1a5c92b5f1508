// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "ScheduleCache.h"
#include "Output.h"
#include "bsr/Dialect/Attributes.h"
#include "bsr/Dialect/Schedules.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/Diagnostics.h"
#include "support/Hash.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/WithColor.h"
#include <fcntl.h>
#include <sys/stat.h>

using namespace mlir;
using namespace mlir::bsr;
using llvm::Error;
using llvm::Expected;
namespace fs = llvm::sys::fs;
namespace path = llvm::sys::path;

static constexpr StringLiteral ending = ".schedules";

static void warn(const llvm::Twine &sentence) {
  llvm::WithColor::warning(llvm::errs(), "sparse-compile") << sentence << "\n";
}

/// The folder, or "" if this user has none.
static std::string findFolder() {
  if (const char *given = std::getenv("SPARSE_OPT_CACHE"); given && *given)
    return given;
  SmallString<128> folder;
  if (const char *base = std::getenv("XDG_CACHE_HOME"); base && *base)
    folder = base;
  else if (path::home_directory(folder))
    path::append(folder, ".cache");
  else
    return "";
  path::append(folder, "sparse-opt");
  return folder.str().str();
}

Expected<ScheduleCache> ScheduleCache::create(std::string key) {
  ScheduleCache cache;
  cache.key = std::move(key);
  cache.folder = findFolder();
  const char *limit = std::getenv("SPARSE_OPT_CACHE_BYTES");
  if (limit && StringRef(limit).getAsInteger(10, cache.mostBytes))
    return llvm::createStringError(
        "expected SPARSE_OPT_CACHE_BYTES to be a number of bytes, but got '" +
        llvm::Twine(limit) + "'");
  return cache;
}

/// What a kernel is, whatever it is called and wherever it was written: how its
/// operands lie, the cluster, and static patterns.
static std::string describe(TunedKernel &kernel) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (auto panels = attrs::panels.get(kernel.launch))
    os << panels << "\n";
  Operation *cluster = kernel.cluster->clone();
  SymbolTable::setSymbolName(cluster, "kernel");
  cluster->print(os, OpPrintingFlags().printGenericOpForm());
  cluster->destroy();
  for (Value input : kernel.launch.getInputs())
    if (Operation *constant = input.getDefiningOp<ConstantPatternOp>())
      os << constant->getAttrDictionary();
  return text;
}

std::string ScheduleCache::getPath(TunedKernel &kernel) const {
  if (folder.empty())
    return "";
  SmallString<128> file(folder);
  path::append(
      file, sparse_opt::hexadecimal(sparse_opt::xxh64(key + describe(kernel))) +
                ending);
  return file.str().str();
}

/// The schedules of products that `text` says, if `products` have them all.
static std::optional<Way> parseWay(const llvm::json::Array &texts,
                                   ArrayRef<Operation *> products) {
  if (texts.size() != products.size())
    return std::nullopt;
  Way way;
  for (auto [text, product] : llvm::zip_equal(texts, products)) {
    std::optional<StringRef> schedule = text.getAsString();
    if (!schedule)
      return std::nullopt;
    if (schedule->empty()) {
      way.push_back(nullptr);
      continue;
    }
    ScopedDiagnosticHandler quiet(product->getContext(),
                                  [](Diagnostic &) { return success(); });
    Attribute attr = parseAttribute(*schedule, product->getContext());
    if (!attr || !ProductSchedule::isValid(attr))
      return std::nullopt;
    attrs::schedule.set(product, cast<DictionaryAttr>(attr));
    LogicalResult verified = verifySchedule(product);
    attrs::schedule.remove(product);
    if (failed(verified))
      return std::nullopt;
    way.push_back(cast<DictionaryAttr>(attr));
  }
  return way;
}

/// What `text` says of a kernel with `products`, if it says anything.
static std::optional<TunedWay> parse(StringRef text,
                                     ArrayRef<Operation *> products) {
  Expected<llvm::json::Value> value = llvm::json::parse(text);
  if (!value) {
    llvm::consumeError(value.takeError());
    return std::nullopt;
  }
  const llvm::json::Object *object = value->getAsObject();
  const llvm::json::Array *texts =
      object ? object->getArray("schedules") : nullptr;
  if (!texts)
    return std::nullopt;
  std::optional<Way> way = parseWay(*texts, products);
  std::optional<double> own = object->getNumber("own_ns"),
                        tuned = object->getNumber("tuned_ns");
  if (!way || !own || !tuned)
    return std::nullopt;
  return TunedWay{*way, *own, *tuned};
}

std::optional<TunedWay> ScheduleCache::find(TunedKernel &kernel) const {
  std::string file = getPath(kernel);
  if (file.empty() || !fs::exists(file))
    return std::nullopt;
  auto buffer = llvm::MemoryBuffer::getFile(file);
  std::optional<TunedWay> found;
  if (buffer)
    found = parse((*buffer)->getBuffer(), kernel.products);
  if (!found) {
    warn("expected schedules of a kernel in '" + file + "', but got " +
         (buffer ? "'" +
                       (*buffer)
                           ->getBuffer()
                           .take_front(40)
                           .take_while(llvm::isPrint)
                           .str() +
                       "'"
                 : buffer.getError().message()) +
         ": they are measured again");
    return std::nullopt;
  }
  ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0); // It was used last.
  return found;
}

void ScheduleCache::store(TunedKernel &kernel, const TunedWay &found) const {
  std::string file = getPath(kernel);
  if (file.empty())
    return;
  llvm::json::Array texts;
  for (DictionaryAttr schedule : found.way) {
    std::string text;
    if (schedule)
      llvm::raw_string_ostream(text) << schedule;
    texts.push_back(text);
  }
  auto kind = attrs::kind.get(kernel.cluster);
  llvm::json::Value value =
      llvm::json::Object{{"kind", kind ? kind.getValue() : ""},
                         {"schedules", std::move(texts)},
                         {"own_ns", found.ownNanoseconds},
                         {"tuned_ns", found.nanoseconds}};
  std::error_code refused = fs::create_directories(folder);
  Error error = refused ? llvm::createStringError("expected to write '" + file +
                                                  "', but got '" +
                                                  refused.message() + "'")
                        : writeFile(file, [&](llvm::raw_pwrite_stream &os) {
                            os << value << "\n";
                            return Error::success();
                          });
  if (error)
    return warn(llvm::toString(std::move(error)));
  shrink(file);
}

void ScheduleCache::shrink(StringRef keep) const {
  struct File {
    llvm::sys::TimePoint<> used;
    uint64_t bytes;
    std::string file;
  };
  std::vector<File> files;
  uint64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator i(folder, error), end; i != end && !error;
       i.increment(error)) {
    fs::file_status status;
    if (!StringRef(i->path()).ends_with(ending) ||
        fs::status(i->path(), status)) // Another process removed it.
      continue;
    files.push_back(
        {status.getLastModificationTime(), status.getSize(), i->path()});
    bytes += status.getSize();
  }
  llvm::sort(files, [](const File &a, const File &b) {
    return std::tie(a.used, a.file) < std::tie(b.used, b.file);
  });
  for (const File &file : files) {
    if (bytes <= mostBytes)
      return;
    if (file.file == keep)
      continue;
    fs::remove(file.file);
    bytes -= file.bytes;
  }
}
