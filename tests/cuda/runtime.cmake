if(NOT TARGET weft_cuda OR NOT TARGET weft_fake_nccl OR NOT TARGET weft_fake_cublaslt)
  return()
endif()

# Whole runtimes on libweft-cuda.so as it is, with the fakes in the real libraries' place: they are
# loaded with the program, under the names that libweft-cuda.so asks for.
add_library(weft_under_fakes OBJECT pinned.cc ../support/under_fakes.cc ../support/world_fakes.cc)
target_include_directories(weft_under_fakes PRIVATE ${PROJECT_SOURCE_DIR})
target_compile_definitions(weft_under_fakes PRIVATE WEFT_CUDA_LIBRARY="$<TARGET_FILE:weft_cuda>"
  INTERFACE WEFT_UNDER_FAKES)
target_link_libraries(weft_under_fakes PUBLIC weft_fakes PRIVATE weft_fake_cudart weft_flags GTest::gtest weft::runtime)

# weft_on_cuda_test(NAME SRCS ... DEPS ...): as weft_test().
function(weft_on_cuda_test NAME)
  cmake_parse_arguments(ARG "" "FILTER;COST" "SRCS;DEPS;ENVIRONMENT" ${ARGN})
  set(cost)
  if(ARG_COST)
    set(cost COST ${ARG_COST})
  endif()
  weft_test(${NAME} SRCS ${ARG_SRCS} DEPS weft_under_fakes weft_fake_kernels ${ARG_DEPS} weft::runtime
    -Wl,--no-as-needed weft_fake_cudart weft_fake_cublaslt weft_fake_nccl -Wl,--as-needed
    LABELS cuda FILTER "${ARG_FILTER}" ${cost} ENVIRONMENT ${ARG_ENVIRONMENT})
  add_dependencies(${NAME} weft_cuda)
endfunction()

if(WEFT_SANITIZE STREQUAL "thread")
  set(waits "-*NoWait*_2x2")  # as the others on four ranks for threads, and the longest of all
endif()
weft_on_cuda_test(streams_cuda_test FILTER "${waits}" SRCS no_wait_test.cc scenarios_test.cc stream_trainer.cc
  DEPS weft_world_local)
# Where NCCL orders launches both orders can be asked for.
if(WEFT_SANITIZE)
  set(hazards "-*OnTightDevices*")  # a quarter of a minute each there; AnyTightDevice draws from the same
endif()
weft_on_cuda_test(executor_hazards_test FILTER "${hazards}" SRCS executor_hazards_test.cc stream_trainer.cc
  DEPS weft_world_local ENVIRONMENT NCCL_LAUNCH_ORDER_IMPLICIT=1)
if(WEFT_SANITIZE)
  # The scenarios take every way through the executor; what follows repeats that, at ten times the time.
  return()
endif()
set(runtime ../runtime)
weft_on_cuda_test(runtime_cuda_test
  SRCS ${runtime}/advice_test.cc ${runtime}/cases_test.cc ${runtime}/commit_test.cc ${runtime}/correctness_test.cc
    ${runtime}/failure_test.cc ${runtime}/gradient_policy_test.cc ${runtime}/job_test.cc ${runtime}/layerwise_test.cc
    ${runtime}/periodic_test.cc
    ${runtime}/measure_test.cc ${runtime}/mixed_layouts_test.cc ${runtime}/node_sharded_test.cc ${runtime}/order_test.cc
    ${runtime}/owned_test.cc ${runtime}/owners_test.cc ${runtime}/parts_test.cc ${runtime}/pass_through_test.cc
    ${runtime}/random_model_test.cc ${runtime}/row_blocks_test.cc ${runtime}/trace_test.cc
  DEPS weft_reference nlohmann_json::nlohmann_json
  # Left out: what makes host devices itself or has none (as safetensors_test.cc, step_recorder_test.cc and
  # gloo_runtime_test.cc), what needs links that take time, and 64 ranks, which wait a minute and a half for each other.
  FILTER "-OneRank.*:PlanForChecks.*:Timing.*:Work.*:Correctness.SixtyFour*:Measure.SeesTheWholeOfAnEmulatedCollective:TraceFile.ARankHasNoMoreCollectivesUnderWayThanItsLimit")
weft_on_cuda_test(checkpoint_cuda_test
  SRCS ${runtime}/checkpoint_test.cc ${runtime}/checkpoint_property_test.cc ${runtime}/checkpoint_refusal_test.cc
    ../support/file_faults.cc)
weft_on_cuda_test(steady_state_cuda_test SRCS ${runtime}/steady_state_test.cc)
# Where NCCL orders launches, the transport has no waits of its own between collectives.
# Those of four ranks take half an hour (docs/fakes.md).
weft_on_cuda_test(mutation_test SRCS mutation_test.cc stream_trainer.cc DEPS weft_world_local
  FILTER "*_1x1:*_1x2" COST 60  # first, or one of them runs alone in the end
  ENVIRONMENT NCCL_LAUNCH_ORDER_IMPLICIT=1)

# What libweft-cuda.so needs is what the fakes have, and what the real libraries have; and it has code
# for every architecture that was asked for.
find_package(NCCL REQUIRED)
add_test(NAME cuda_symbols
  COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/symbols.py $<TARGET_FILE:weft_cuda>
    -- $<TARGET_FILE:weft_fake_cudart> $<TARGET_FILE:weft_fake_cublaslt> $<TARGET_FILE:weft_fake_nccl>
    -- $<TARGET_FILE:CUDA::cudart> $<TARGET_FILE:CUDA::cublasLt> $<TARGET_FILE:NCCL::nccl>)
add_test(NAME cuda_architectures
  COMMAND python3 ${CMAKE_CURRENT_SOURCE_DIR}/architectures.py $<TARGET_FILE:weft_cuda>
    ${CMAKE_CUDA_ARCHITECTURES})
set_tests_properties(cuda_symbols cuda_architectures PROPERTIES TIMEOUT 60 LABELS cuda)
