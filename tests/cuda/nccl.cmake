# Tests of the NCCL leaf.
if(NOT TARGET weft_collectives_nccl)
  return()
endif()

add_library(weft_nccl_kinds OBJECT nccl_kinds.cc)
target_link_libraries(weft_nccl_kinds
  PUBLIC weft_collectives_testing weft_collectives_nccl weft_device_cuda weft_fakes weft_base
  PRIVATE weft_flags)

# weft_nccl_test(NAME SRCS ...): a test that is linked against the real libraries and finds the fakes
# in their place.
function(weft_nccl_test NAME)
  weft_test(${NAME} ${ARGN} DEPS weft_nccl_kinds)
  set_target_properties(${NAME} PROPERTIES SKIP_BUILD_RPATH ON)
  target_link_options(${NAME} PRIVATE -Wl,-rpath,$<TARGET_FILE_DIR:weft_fakes>)
  add_dependencies(${NAME} weft_fake_cudart weft_fake_cublaslt weft_fake_nccl)
endfunction()

weft_nccl_test(nccl_conformance_test
  SRCS ../collectives/conformance_test.cc ../collectives/together_test.cc)
weft_nccl_test(nccl_test SRCS nccl_failure_test.cc nccl_launch_order_test.cc nccl_note_test.cc)
weft_nccl_test(nccl_serialized_test SRCS nccl_order_test.cc)
weft_nccl_test(nccl_implicit_test SRCS nccl_order_test.cc ENVIRONMENT NCCL_LAUNCH_ORDER_IMPLICIT=1)
