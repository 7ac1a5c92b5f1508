// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws examples of arrays.

#include "ArrayBatches.h"
#include "support/Error.h"
#include "support/Random.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <optional>

using namespace sparse_opt;
using namespace sparse_opt::train;

/// The stream of the orders of epochs; those of text are 0 to 2.
static constexpr uint64_t orderStream = 3;

/// Calls `visit` with an integer of `type`; false if it is of another kind.
template <typename Visit>
static bool visitInteger(ElementType type, Visit visit) {
  switch (type) {
  case ElementType::I8:
    return visit(int8_t()), true;
  case ElementType::I32:
    return visit(int32_t()), true;
  case ElementType::I64:
    return visit(int64_t()), true;
  case ElementType::UI8:
    return visit(uint8_t()), true;
  case ElementType::UI32:
    return visit(uint32_t()), true;
  case ElementType::UI64:
    return visit(uint64_t()), true;
  default:
    return false;
  }
}

namespace {
/// The integers that an array may have: from `least` to below `limit`, or
/// `ignored`.
struct Limits {
  double least, limit;
  std::optional<double> ignored;
};
} // namespace

/// Fails unless the integers of `array`, called `name`, are within `limits`,
/// which the buffer's type holds: they may be places in a table.
static void requireWithin(const ExampleArray &array, const std::string &name,
                          const Limits &limits) {
  visitInteger(array.type, [&](auto element) {
    using Element = decltype(element);
    for (size_t i = 0; i < array.data.size() / sizeof(Element); ++i) {
      std::memcpy(&element, array.data.data() + i * sizeof(Element),
                  sizeof(Element));
      auto value = double(element);
      if ((value < limits.least || value >= limits.limit) &&
          value != limits.ignored)
        fail("expected integers from ", limits.least, " to below ",
             limits.limit, limits.ignored ? " or ignored ones" : "",
             ", as limits says, in array '", name, "', but got ", +element);
    }
  });
}

/// What `config` says of the integers of the array `word`, of which a buffer of
/// `type` holds them.
static Limits limitsOf(const std::string &word, ElementType type,
                       const Config &config) {
  auto find = [&](const std::map<std::string, double> &numbers) {
    auto found = numbers.find(word);
    return found == numbers.end() ? std::nullopt : std::optional(found->second);
  };
  bool isSigned = !isUnsigned(type);
  double end = std::ldexp(1, int(8 * bytesOf(type)) - isSigned);
  double begin = isSigned ? -end : 0;
  std::optional<double> limit = find(config.dataLimits);
  if (!limit)
    fail("expected configuration key 'limits' to say below which "
         "number the integers of '",
         word, "' are, as their number of classes, but got none");
  Limits limits = {std::max(find(config.dataLeast).value_or(0), begin),
                   std::min(*limit, end), find(config.dataIgnored)};
  if (limits.ignored < begin || limits.ignored >= end)
    limits.ignored.reset();
  return limits;
}

/// Whether a buffer of `type` can be filled with elements of `array`.
static bool converts(const ExampleArray &array, ElementType type) {
  auto isInteger = [](ElementType t) { return visitInteger(t, [](auto) {}); };
  return array.type == type || (isInteger(array.type) && isInteger(type));
}

ArrayBatches::ArrayBatches(Session &session, const Arrays &arrays,
                           const Config &config)
    : session(session), seed(config.seed), accumulate(config.accumulate) {
  for (const Buffer &buffer : session.buffers()) {
    if (buffer.role != "batch")
      continue;
    std::string word(lastWord(buffer.name));
    Source source = {&buffer, arrays.find(word), nullptr, {}};
    std::string heldOut = std::string(Arrays::heldOutPrefix) + word;
    source.heldOut = arrays.haveHeldOut() ? arrays.find(heldOut) : source.train;
    if (!source.train || !source.heldOut)
      fail("expected data '", config.data, "' to have an array '",
           source.train ? heldOut : word, "' for the step's '", buffer.name,
           "', but got '", arrays.nearest(source.train ? heldOut : word), "'");
    if (buffer.shape.empty())
      fail("expected the step's '", buffer.name,
           "' to have a dimension of examples, but got one number");
    for (const ExampleArray *array : {source.train, source.heldOut}) {
      std::vector<int64_t> shape = array->shape;
      shape[0] = buffer.shape[0];
      if (shape != buffer.shape || !converts(*array, ElementType(buffer.type)))
        fail("expected array '", array == source.train ? word : heldOut,
             "' to have examples of the step's ",
             describe(buffer.type, buffer.shape), ", but got ",
             describe(bsr_type(array->type), array->shape));
      if (!visitInteger(array->type, [](auto) {}))
        continue;
      requireWithin(*array, array == source.train ? word : heldOut,
                    limitsOf(word, ElementType(buffer.type), config));
    }
    if (batch && batch != buffer.shape[0])
      fail("expected batch buffers with ", batch, " examples, but got '",
           buffer.name, "' with ", buffer.shape[0]);
    batch = buffer.shape[0];
    source.made.resize(size_t(buffer.elements * bsr_type_bytes(buffer.type)));
    sources.push_back(std::move(source));
  }
  if (sources.empty())
    fail("expected the step to have a batch buffer, but got none");
  trainCount = arrays.trainExamples();
  heldOutFirst = 0;
  heldOutCount = arrays.heldOutExamples();
  if (!arrays.haveHeldOut()) {
    heldOutCount = std::llround(config.heldOutShare * double(trainCount));
    heldOutFirst = trainCount -= heldOutCount;
  }
  if (trainCount < 1 || heldOutCount < 1)
    fail("expected examples to train on and to hold out, but got ", trainCount,
         " and ", heldOutCount, ": held_out.share is ", config.heldOutShare);
}

int64_t ArrayBatches::exampleAt(int64_t place) {
  int64_t epoch = place / trainCount;
  if (epoch != orderedEpoch) {
    order.resize(size_t(trainCount));
    std::iota(order.begin(), order.end(), 0);
    SplitMix64 random(seed, orderStream, uint64_t(epoch));
    for (int64_t i = trainCount - 1; i > 0; --i)
      std::swap(order[size_t(i)], order[random.below(uint64_t(i) + 1)]);
    orderedEpoch = epoch;
  }
  return order[size_t(place % trainCount)];
}

void ArrayBatches::copy(Source &source, const ExampleArray &array, int64_t row,
                        int64_t example) const {
  int64_t bytes = array.bytesPerExample();
  const char *from = array.data.data() + example * bytes;
  auto type = ElementType(source.buffer->type);
  int64_t own = int64_t(source.made.size()) / batch;
  char *to = source.made.data() + row * own;
  if (array.type == type) {
    std::memcpy(to, from, size_t(bytes));
    return;
  }
  int64_t elements = bytes / bytesOf(array.type);
  visitInteger(array.type, [&](auto given) {
    visitInteger(type, [&](auto element) {
      for (int64_t i = 0; i < elements; ++i) {
        std::memcpy(&given, from + i * int64_t(sizeof given), sizeof given);
        element = decltype(element)(given);
        std::memcpy(to + i * int64_t(sizeof element), &element, sizeof element);
      }
    });
  });
}

void ArrayBatches::write() {
  for (const Source &source : sources)
    session.write(*source.buffer, source.made.data());
}

void ArrayBatches::fillTrain(int64_t step, int64_t micro) {
  int64_t first = (step * accumulate + micro) * batch;
  for (int64_t row = 0; row < batch; ++row) {
    int64_t example = exampleAt(first + row);
    for (Source &source : sources)
      copy(source, *source.train, row, example);
  }
  write();
}

void ArrayBatches::fillHeldOut(int64_t index, int64_t) {
  for (int64_t row = 0; row < batch; ++row)
    for (Source &source : sources)
      copy(source, *source.heldOut, row,
           heldOutFirst + (index * batch + row) % heldOutCount);
  write();
}
