/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 *
 * Runs a compiled step once, on buffers in a file: for a step of another
 * machine than the one that tests run on (aarch64.py).
 *
 *     run-step LIBRARY                              prints the manifest
 *     run-step LIBRARY ENTRY FILE OFFSET... ARENA   runs the function ENTRY
 *
 * Buffers lie at the offsets, in the order of the manifest, the arena at the
 * last.
 */

#include "bsr/step.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>

int main(int argc, char **argv) {
  void *library = argc > 1 ? dlopen(argv[1], RTLD_NOW) : NULL;
  const char *manifest = library ? dlsym(library, "bsr_step_manifest") : NULL;
  if (!manifest) {
    fprintf(stderr, "error: expected a step, but got %s\n",
            argc > 1 ? dlerror() : "none");
    return 2;
  }
  if (argc < 4)
    return puts(manifest) < 0;
  int32_t (*run)(bsr_context *, void **, void *) = dlsym(library, argv[2]);
  int file = open(argv[3], O_RDWR);
  struct stat state;
  if (!run || file < 0 || fstat(file, &state) != 0) {
    fprintf(stderr,
            "error: expected a function and a file of buffers, but got '%s' "
            "and '%s'\n",
            argv[2], argv[3]);
    return 2;
  }
  char *memory =
      mmap(NULL, state.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) {
    perror(argv[3]);
    return 2;
  }
  void **buffers = malloc(argc * sizeof *buffers);
  for (int i = 4; i < argc; ++i)
    buffers[i - 4] = memory + atoll(argv[i]);
  bsr_context context = {BSR_CONTEXT_VERSION, BSR_HOST, NULL, 0};
  return run(&context, buffers, buffers[argc - 5]);
}
