# Finds the headers of NVTX 3 with its payload extension (they come with a CUDA toolkit) when WEFT_NVTX
# allows it, and defines Nvtx::nvtx. Without them Weft annotates nothing. AUTO never fails.
if(WEFT_NVTX STREQUAL "ON" OR WEFT_NVTX STREQUAL "AUTO")
  find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExtPayload.h
    HINTS ${CUDAToolkit_INCLUDE_DIRS} ENV CUDA_HOME ENV CUDA_PATH PATHS /usr/local/cuda
    PATH_SUFFIXES include)
  include(FindPackageHandleStandardArgs)
  if(WEFT_NVTX STREQUAL "ON")
    set(Nvtx_FIND_REQUIRED TRUE)
  else()
    set(Nvtx_FIND_QUIETLY TRUE)
  endif()
  find_package_handle_standard_args(Nvtx REQUIRED_VARS NVTX_INCLUDE_DIR)
elseif(NOT WEFT_NVTX STREQUAL "OFF")
  message(FATAL_ERROR "WEFT_NVTX must be AUTO, ON or OFF, not ${WEFT_NVTX}")
endif()
if(Nvtx_FOUND)
  message(STATUS "Weft: NVTX found")
  add_library(Nvtx::nvtx INTERFACE IMPORTED)
  target_include_directories(Nvtx::nvtx SYSTEM INTERFACE ${NVTX_INCLUDE_DIR})
  target_link_libraries(Nvtx::nvtx INTERFACE ${CMAKE_DL_LIBS})
else()
  message(STATUS "Weft: building without NVTX")
endif()
