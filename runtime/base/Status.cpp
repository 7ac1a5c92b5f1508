// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps the sentence of a thread's last failure.

#include "Status.h"

using namespace sparse_opt;

// The errors of the support library are some of the runtime's.
static_assert(int(BSR_INVALID_ARGUMENT) == InvalidArgument);
static_assert(int(BSR_INVALID_CHECKPOINT) == InvalidTensors);
static_assert(int(BSR_IO_ERROR) == IOError);

static thread_local std::string lastSentence;
static thread_local const char *lastError = "";

void sparse_opt::requireArgument(const void *pointer, const char *name) {
  if (!pointer)
    fail(BSR_INVALID_ARGUMENT, "expected argument '", name,
         "' to point somewhere, but got null");
}

void sparse_opt::requireIndex(int64_t index, int64_t size, const char *name) {
  if (index < 0 || index >= size)
    fail(BSR_INVALID_ARGUMENT, "expected the index of one of ", size, " ", name,
         ", but got ", index);
}

bsr_status sparse_opt::keepError(Error error) noexcept {
  lastSentence = std::move(error.sentence);
  lastError = lastSentence.c_str();
  return bsr_status(error.status);
}

bsr_status sparse_opt::keepException(const std::exception &exception) noexcept {
  return keepError(
      Error(BSR_INVALID_ARGUMENT,
            concatenate("expected input that the runtime can read, but got: ",
                        exception.what())));
}

bsr_status sparse_opt::keepOutOfMemory() noexcept {
  lastError = "expected memory for the runtime's own lists, but got none";
  return BSR_OUT_OF_MEMORY;
}

const char *bsr_last_error(void) { return lastError; }

uint32_t bsr_runtime_version(void) { return BSR_RUNTIME_VERSION; }
