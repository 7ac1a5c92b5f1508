# LLVM and MLIR from their archives, of which the linker takes what is used: the
# tools then need nothing of LLVM on the machine that runs them, and only the C
# library of some years ago (scripts/wheel.sh).

set(LLVM_LINK_LLVM_DYLIB OFF)
set(MLIR_LINK_MLIR_DYLIB OFF)
file(GLOB archives ${LLVM_LIBRARY_DIR}/libMLIR*.a ${LLVM_LIBRARY_DIR}/libLLVM*.a)
list(FILTER archives EXCLUDE REGEX "CAPI|Test|Runner|Runtime\\.a")
find_library(BSR_STATIC_ZLIB libz.a REQUIRED)
find_library(BSR_STATIC_ZSTD libzstd.a REQUIRED)
add_library(bsr_static_llvm STATIC cmake/StaticLLVM.cpp)
target_compile_options(bsr_static_llvm PRIVATE -Wno-missing-prototypes)
target_link_libraries(bsr_llvm INTERFACE bsr_static_llvm
  ${archives} ${BSR_STATIC_ZLIB} ${BSR_STATIC_ZSTD} ${CMAKE_DL_LIBS})
# add_mlir_library links this one everywhere, and with it shared libraries of others.
set_target_properties(LLVMSupport PROPERTIES INTERFACE_LINK_LIBRARIES "")
