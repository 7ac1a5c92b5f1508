// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "SampleSession.h"

#include "../sparse-run/Elements.h"
#include "support/Random.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/Endian.h"

using namespace mlir;
using namespace mlir::bsr;
using llvm::APFloat;
using llvm::createStringError;
using llvm::Error;
using llvm::Expected;
using tools::NamedArray;
using tools::NamedArrays;
using tools::Number;

static Error toError(bsr_status status) {
  return status == BSR_OK ? Error::success()
                          : createStringError(bsr_last_error());
}

/// How elements of `type` are encoded, or null for integers.
static const llvm::fltSemantics *getSemantics(bsr_type type) {
  switch (type) {
  case BSR_F16:
    return &APFloat::IEEEhalf();
  case BSR_BF16:
    return &APFloat::BFloat();
  case BSR_F32:
    return &APFloat::IEEEsingle();
  case BSR_F64:
    return &APFloat::IEEEdouble();
  default:
    return nullptr;
  }
}

/// The element `index` of `data`, as the step computes with it: without a sign
/// of its own.
static Number decode(bsr_type type, std::string_view data, size_t index) {
  using sparse_opt::ElementType;
  auto signless = ElementType(type);
  if (signless == ElementType::UI8)
    signless = ElementType::I8;
  else if (signless == ElementType::UI32)
    signless = ElementType::I32;
  return tools::getNumber(signless, data, index);
}

/// Writes the `size` bytes of an element: steps run on processors that have the
/// lowest byte first.
static void setBits(char *data, int64_t size, uint64_t bits) {
  std::memcpy(data, &bits, size_t(size));
}

static void encode(bsr_type type, double number, char *data) {
  APFloat value(number);
  bool losesInfo;
  value.convert(*getSemantics(type), APFloat::rmNearestTiesToEven, &losesInfo);
  setBits(data, bsr_type_bytes(type), value.bitcastToAPInt().getZExtValue());
}

Expected<SampleSession> SampleSession::create(StringRef library) {
  SampleSession sample;
  bsr_step *step = nullptr;
  if (Error error = toError(bsr_step_load(library.str().c_str(), &step)))
    return std::move(error);
  sample.step.reset(step);
  bsr_session *session = nullptr;
  if (Error error =
          toError(bsr_session_create(step, "cpu", /*seed=*/1, &session)))
    return std::move(error);
  sample.session.reset(session);
  if (Error error = toError(bsr_session_initialize(session)))
    return std::move(error);
  return std::move(sample);
}

bsr_buffer_info SampleSession::getInfo(int64_t index) const {
  bsr_buffer_info info;
  if (bsr_step_buffer(step.get(), index, &info) != BSR_OK)
    llvm_unreachable("buffers are counted");
  return info;
}

/// True for what the caller of a step writes: no indices, no results.
static bool isArgument(const bsr_buffer_info &info) {
  return info.kind == BSR_DENSE || info.kind == BSR_VALUES;
}

Error SampleSession::fill(int64_t bound) {
  for (int64_t i = 0, e = bsr_step_num_buffers(step.get()); i != e; ++i)
    if (bsr_buffer_info info = getInfo(i); isArgument(info))
      if (Error error = fill(i, info, bound))
        return error;
  return Error::success();
}

Error SampleSession::fill(int64_t index, const bsr_buffer_info &info,
                          int64_t bound) {
  StringRef role = info.role, rule = info.init;
  bool isFloat = getSemantics(info.type);
  // A rule says more of the numbers that are meant than this may guess, but
  // that moments start as zeros says little.
  if (!rule.empty() && (!isFloat || rule != "zeros"))
    return Error::success();
  sparse_opt::RandomStream random(/*seed=*/1, "sample", info.name);
  int64_t size = bsr_type_bytes(info.type);
  std::vector<char> data(size_t(info.bytes));
  for (int64_t i = 0; i != info.elements; ++i) {
    char *element = data.data() + i * size;
    if (!isFloat) {
      uint64_t below = info.type == BSR_I1 ? 2 : uint64_t(bound);
      setBits(element, size, random.below(below, uint64_t(i)));
      continue;
    }
    double number = random.normal(uint64_t(i));
    if (role == "lr")
      number = 0.01;
    else if (role == "param")
      number *= 0.1;
    else if (info.carried)
      number = 0.1 + std::abs(number);
    encode(info.type, number, element);
  }
  return toError(
      bsr_session_write(session.get(), index, 0, info.bytes, data.data()));
}

Expected<std::vector<char>> SampleSession::readBytes(int64_t index) const {
  std::vector<char> data(size_t(getInfo(index).bytes));
  if (Error error = toError(bsr_session_read(
          session.get(), index, 0, int64_t(data.size()), data.data())))
    return std::move(error);
  return data;
}

Expected<NamedArray> SampleSession::read(int64_t index) const {
  bsr_buffer_info info = getInfo(index);
  Expected<std::vector<char>> data = readBytes(index);
  if (!data)
    return data.takeError();
  NamedArray array;
  array.kind = getSemantics(info.type) ? NamedArray::Floats
               : info.type == BSR_I1   ? NamedArray::Booleans
                                       : NamedArray::Integers;
  array.array.shape.assign(info.shape, info.shape + info.rank);
  array.array.elements.reserve(size_t(info.elements));
  for (int64_t i = 0; i != info.elements; ++i)
    array.array.elements.push_back(
        decode(info.type, std::string_view(data->data(), data->size()), i));
  return array;
}

Expected<NamedArrays> SampleSession::getArguments() const {
  NamedArrays arrays;
  for (int64_t i = 0, e = bsr_step_num_buffers(step.get()); i != e; ++i) {
    bsr_buffer_info info = getInfo(i);
    bool isIndices = info.kind == BSR_ROW_PTR || info.kind == BSR_COL_IDX ||
                     info.kind == BSR_SLOT;
    if (!isArgument(info) && !isIndices)
      continue;
    Expected<NamedArray> array = read(i);
    if (!array)
      return array.takeError();
    std::string name = info.name;
    if (isIndices)
      name += std::string(".bsr.") + bsr_kind_name(info.kind);
    arrays[name] = std::move(*array);
  }
  return arrays;
}

Error SampleSession::run() { return toError(bsr_session_run(session.get())); }

Expected<SmallVector<int64_t>> SampleSession::runTimed(StringRef prefix) {
  int64_t first = 0, count = 0, timers = bsr_step_num_timers(step.get());
  auto read = [&](bsr_trace_event *events, int64_t most) {
    return toError(
        bsr_step_read_trace_events(step.get(), first, events, most, &count));
  };
  if (Error error = read(nullptr, 0))
    return std::move(error);
  first = count;
  if (Error error = run())
    return std::move(error);
  if (Error error = read(nullptr, 0))
    return std::move(error);
  std::vector<bsr_trace_event> events(size_t(count - first));
  if (Error error = read(events.data(), int64_t(events.size())))
    return std::move(error);
  SmallVector<int64_t> times;
  for (size_t i = 1; i < events.size(); ++i) {
    bsr_timer_info timer;
    if (events[i].timer < timers &&
        bsr_step_timer(step.get(), events[i].timer, &timer) == BSR_OK &&
        StringRef(timer.kernel).starts_with(prefix))
      times.push_back(events[i].ended - events[i - 1].ended);
  }
  return times;
}

int64_t SampleSession::find(const std::string &name) const {
  for (bsr_kind kind : {BSR_VALUES, BSR_DENSE, BSR_OUTPUT})
    if (int64_t index = bsr_step_find_buffer(step.get(), kind, name.c_str());
        index >= 0)
      return index;
  return -1;
}

Expected<NamedArray> SampleSession::getResult(const std::string &name) const {
  int64_t index = find(name);
  assert(index >= 0 && "a compiled step has a buffer for each result");
  return read(index);
}

Expected<bool> SampleSession::areSame(const std::string &name,
                                      const std::string &other) const {
  Expected<std::vector<char>> one = readBytes(find(name));
  if (!one)
    return one.takeError();
  Expected<std::vector<char>> two = readBytes(find(other));
  if (!two)
    return two.takeError();
  return *one == *two;
}

Expected<SmallVector<bool>>
SampleSession::getLiveSlots(const std::string &name) const {
  SmallVector<bool> live;
  int64_t index = find(name);
  if (index < 0)
    return live;
  bsr_buffer_info info = getInfo(index);
  if (info.kind != BSR_VALUES)
    return live;
  bsr_pattern_info pattern;
  if (Error error =
          toError(bsr_step_pattern(step.get(), info.pattern, &pattern)))
    return std::move(error);
  int64_t ptr = bsr_step_find_buffer(step.get(), BSR_ROW_PTR, pattern.name),
          slot = bsr_step_find_buffer(step.get(), BSR_SLOT, pattern.name);
  if (pattern.is_static || ptr < 0 || slot < 0)
    return live;
  Expected<NamedArray> ends = read(ptr);
  if (!ends)
    return ends.takeError();
  Expected<NamedArray> slots = read(slot);
  if (!slots)
    return slots.takeError();
  live.assign(size_t(pattern.slots), false);
  for (int64_t k = 0; k != ends->array.elements.back().integer; ++k)
    live[size_t(slots->array.elements[size_t(k)].integer)] = true;
  return live;
}
