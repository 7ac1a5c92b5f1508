// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Batches of arrays: classification, regression, whatever a step learns.

#ifndef BSR_TOOLS_SPARSETRAIN_ARRAYBATCHES_H
#define BSR_TOOLS_SPARSETRAIN_ARRAYBATCHES_H

#include "Arrays.h"
#include "Batches.h"
#include "Config.h"

namespace sparse_opt::train {

/// Fills every batch buffer [B, ...] of a step with examples of the array that
/// is called as the last word of its name, [N, ...]. Integers may be of another
/// width than the step's. An epoch takes every example once, in an order keyed
/// by (seed, epoch), and the next one begins where it ends, within a batch too.
class ArrayBatches : public Batches {
public:
  /// Throws `Error` if an array is missing or of another type or shape, or if
  /// integers are outside of what `limits` and its kin say of them.
  ArrayBatches(Session &session, const Arrays &arrays, const Config &config);

  void fillTrain(int64_t step, int64_t micro) override;
  void fillHeldOut(int64_t batch, int64_t count) override;
  int64_t tokensPerBatch() const override { return batch; }

private:
  struct Source {
    const Buffer *buffer;
    const ExampleArray *train, *heldOut;
    std::vector<char> made;
  };

  /// The example in place `place` of all epochs.
  int64_t exampleAt(int64_t place);
  void copy(Source &source, const ExampleArray &array, int64_t row,
            int64_t example) const;
  void write();

  Session &session;
  std::vector<Source> sources;
  uint64_t seed;
  int64_t accumulate;
  int64_t batch = 0;                // B
  int64_t trainCount, heldOutFirst, // examples, and where those held out begin
      heldOutCount;
  int64_t orderedEpoch = -1;
  std::vector<int64_t> order; // of that epoch
};

} // namespace sparse_opt::train

#endif // BSR_TOOLS_SPARSETRAIN_ARRAYBATCHES_H
