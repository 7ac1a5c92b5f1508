// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Draws examples of arrays.

#include "ArrayBatches.h"
#include "support/Error.h"
#include "support/Random.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

using namespace bsr;
using namespace bsr::train;

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

/// Fails unless the integers of `array`, called `name`, are from 0 to below
/// `limit`, which the buffer's type holds: they may be places in a table.
static void requireBelow(const ExampleArray &array, const std::string &name,
                         double limit) {
  visitInteger(array.type, [&](auto element) {
    using Element = decltype(element);
    for (size_t i = 0; i < array.data.size() / sizeof(Element); ++i) {
      std::memcpy(&element, array.data.data() + i * sizeof(Element),
                  sizeof(Element));
      bool isBelow = double(element) < limit;
      if constexpr (std::is_signed_v<Element>)
        isBelow &= element >= 0;
      if (!isBelow)
        fail("expected integers from 0 to below ", limit,
             ", as limits says, in array '", name, "', but got ", +element);
    }
  });
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
      auto limit = config.dataLimits.find(word);
      double most = std::ldexp(1, int(8 * bsr_type_bytes(buffer.type)) -
                                      !isUnsigned(ElementType(buffer.type)));
      if (limit == config.dataLimits.end())
        fail("expected configuration key 'limits' to say below which "
             "number the integers of '",
             word, "' are, as their number of classes, but got none");
      requireBelow(*array, array == source.train ? word : heldOut,
                   std::min(limit->second, most));
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
