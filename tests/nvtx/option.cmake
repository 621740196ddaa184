# What the option WEFT_NVTX does: configures the library in each of its settings, and compiles base
# without NVTX. WEFT, CXX, GENERATOR, FOLDER: the source tree, compiler, generator, a folder to work in.
function(configure_with expected)
  file(REMOVE_RECURSE ${FOLDER})
  execute_process(
    COMMAND ${CMAKE_COMMAND} -G ${GENERATOR} -S ${WEFT} -B ${FOLDER} -D CMAKE_CXX_COMPILER=${CXX}
      -D WEFT_BUILD_TESTS=OFF -D WEFT_BUILD_TOOLS=OFF -D WEFT_BUILD_EXAMPLES=OFF -D WEFT_CUDA=OFF ${ARGN}
    RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(NOT said MATCHES "${expected}")
    message(FATAL_ERROR "${ARGN}: not '${expected}':\n${said}")
  endif()
  if(said MATCHES "CMake Error" AND NOT failed)
    message(FATAL_ERROR "${ARGN}: an error that is none")
  endif()
endfunction()

set(nowhere -D NVTX_INCLUDE_DIR=)  # as if there were no headers
configure_with("WEFT_NVTX must be AUTO, ON or OFF, not MAYBE" -D WEFT_NVTX=MAYBE)
configure_with("Could NOT find Nvtx" -D WEFT_NVTX=ON ${nowhere})
configure_with("Weft: building without NVTX" -D WEFT_NVTX=AUTO ${nowhere})
configure_with("Weft: building without NVTX" -D WEFT_NVTX=OFF)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER} --target weft_base COMMAND_ERROR_IS_FATAL ANY)
