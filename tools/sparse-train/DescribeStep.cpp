// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception

#include "DescribeStep.h"
#include "support/Error.h"
#include <cstdio>

using namespace sparse_opt;
using namespace sparse_opt::train;

Blocks train::countBlocks(const Session &session) {
  Blocks blocks;
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), i, &info);
    blocks.all += info.rows / info.block_rows * (info.cols / info.block_cols);
    blocks.stored += session.pattern(i).blocks;
    blocks.staticPatterns += info.is_static;
  }
  return blocks;
}

void train::describeWeights(const Session &session) {
  for (int64_t i = 0; i < bsr_step_num_patterns(session.step()); ++i) {
    bsr_pattern_info info;
    bsr_step_pattern(session.step(), i, &info);
    std::printf("  %s  [%lld, %lld]  %lldx%lld  %lld of %lld blocks\n",
                printable(info.name).c_str(), (long long)info.rows,
                (long long)info.cols, (long long)info.block_rows,
                (long long)info.block_cols,
                (long long)session.pattern(i).blocks,
                (long long)(info.rows / info.block_rows *
                            (info.cols / info.block_cols)));
  }
}

int64_t train::countSparseProducts(const bsr_step *step) {
  return bsr_step_num_products(step, "spmm") +
         bsr_step_num_products(step, "spmm_transposed") +
         bsr_step_num_products(step, "sddmm");
}

void train::describe(const Session &session, const PatternUpdates &updates) {
  const bsr_step *step = session.step();
  Blocks blocks = countBlocks(session);
  std::string fixed =
      blocks.staticPatterns
          ? " (" + std::to_string(blocks.staticPatterns) + " static)"
          : "";
  std::printf("%s for %s: %lld patterns%s, %lld of %lld blocks stored, "
              "%lld sparse and %lld dense products, %lld left dense\n",
              printable(bsr_step_name(step)).c_str(),
              printable(*bsr_step_chip(step) ? bsr_step_chip(step)
                                             : bsr_step_target_cpu(step))
                  .c_str(),
              (long long)bsr_step_num_patterns(step), fixed.c_str(),
              (long long)blocks.stored, (long long)blocks.all,
              (long long)countSparseProducts(step),
              (long long)bsr_step_num_products(step, "dense"),
              (long long)bsr_step_num_left_dense(step));
  if (updates.leavePatterns() && blocks.stored < blocks.all)
    std::printf("note: patterns stay as they begin, since neither "
                "sparsity.every nor sparsity.updates has a value\n");
  if (std::vector<std::string> frozen = updates.frozen(); !frozen.empty())
    std::printf("note: patterns of weights that the step does not train stay "
                "as they begin: %zu, from '%s' on\n",
                frozen.size(), printable(frozen.front()).c_str());
  std::fflush(stdout);
}
