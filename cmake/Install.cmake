# What `cmake --install` writes. Components: runtime, tools, development, python,
# docs; the runtime's own are in runtime/CMakeLists.txt.

include(CMakePackageConfigHelpers)

install(TARGETS sparse-checkpoint sparse-train RUNTIME COMPONENT tools)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT docs)
install(DIRECTORY docs DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT docs)
install(DIRECTORY examples DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT docs
  FILES_MATCHING PATTERN "*.py" PATTERN "*.slurm" PATTERN "*.yaml" PATTERN "bert_tiny.mlir.gz")

include(cmake/Python.cmake)

if(NOT BSR_COMPILER OR BSR_STATIC_LLVM) # whose build is for a wheel
  return()
endif()

set_property(TARGET sparse-compile sparse-lsp-server sparse-opt sparse-partition sparse-reduce sparse-run
  APPEND PROPERTY INSTALL_RPATH ${LLVM_LIBRARY_DIR})
install(TARGETS sparse-compile sparse-lsp-server sparse-opt sparse-partition sparse-reduce sparse-run
  RUNTIME COMPONENT tools)
install(TARGETS SparseOptPlugin LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT tools)

# The compiler as libraries: the package SparseOpt of CMake.
get_property(libraries GLOBAL PROPERTY BSR_LIBRARIES)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/SparseOpt)
install(TARGETS ${libraries} bsr_llvm bsr_support ptx-interpreter EXPORT SparseOptTargets
  ARCHIVE COMPONENT development INCLUDES DESTINATION include)
install(EXPORT SparseOptTargets NAMESPACE SparseOpt:: DESTINATION ${package} COMPONENT development)
install(DIRECTORY include/bsr TYPE INCLUDE COMPONENT development
  FILES_MATCHING PATTERN "*.h" PATTERN "*.td")
install(DIRECTORY ${PROJECT_BINARY_DIR}/include/bsr TYPE INCLUDE COMPONENT development
  FILES_MATCHING PATTERN "*.inc")
configure_package_config_file(cmake/SparseOptConfig.cmake.in
  ${PROJECT_BINARY_DIR}/cmake/SparseOptConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cmake/SparseOptConfigVersion.cmake
  VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cmake/SparseOptConfig.cmake
  ${PROJECT_BINARY_DIR}/cmake/SparseOptConfigVersion.cmake
  DESTINATION ${package} COMPONENT development)
