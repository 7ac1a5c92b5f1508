# The Python package, and its commands, which find it in a build as where they are
# installed: at the same path beside them.

# Where Debian's Python looks under /usr; another Python wants its own folder.
set(BSR_PYTHON_INSTALL_DIR lib/python3/dist-packages CACHE STRING
  "Where the Python package goes, relative to the prefix")
install(DIRECTORY python/sparse_opt DESTINATION ${BSR_PYTHON_INSTALL_DIR} COMPONENT python
  PATTERN __pycache__ EXCLUDE)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/${BSR_PYTHON_INSTALL_DIR})
file(CREATE_LINK ${PROJECT_SOURCE_DIR}/python/sparse_opt
  ${PROJECT_BINARY_DIR}/${BSR_PYTHON_INSTALL_DIR}/sparse_opt SYMBOLIC)

function(bsr_add_command name module python)
  set(command ${LLVM_RUNTIME_OUTPUT_INTDIR}/${name})
  configure_file(cmake/command.py.in ${command} @ONLY FILE_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
  install(PROGRAMS ${command} TYPE BIN COMPONENT python)
endfunction()

# Debian's Python has what these need; W&B's client is where the user installed it.
bsr_add_command(sparse-report report /usr/bin/python3)
bsr_add_command(sparse-sweep sweep /usr/bin/python3)
bsr_add_command(sparse-wandb wandb_import "/usr/bin/env python3")
