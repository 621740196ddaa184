# Finds a CUDA toolkit when WEFT_CUDA allows it. No target needs one yet: the CUDA leaves come with
# device/cuda and collectives/nccl, so nothing is printed either. AUTO never fails.
if(WEFT_CUDA STREQUAL "ON")
  find_package(CUDAToolkit REQUIRED)
elseif(WEFT_CUDA STREQUAL "AUTO")
  find_package(CUDAToolkit QUIET)
elseif(NOT WEFT_CUDA STREQUAL "OFF")
  message(FATAL_ERROR "WEFT_CUDA must be AUTO, ON or OFF, not ${WEFT_CUDA}")
endif()
