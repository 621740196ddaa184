# weft_library(NAME SRCS ... DEPS ...): the target weft_NAME, alias weft::NAME, for one folder.
# weft_test(NAME SRCS ... DEPS ... LABELS ... ENVIRONMENT ... FILTER F): one test program, its cases
# (those of gtest's filter F) known to CTest.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE RelWithDebInfo)
endif()

find_program(WEFT_CCACHE ccache)
if(WEFT_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${WEFT_CCACHE})
endif()

add_library(weft_flags INTERFACE)
# nvcc has flags of its own: what follows is for C++ files.
set(WEFT_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor
  -Wno-missing-field-initializers)  # designated initializers leave out what has a default
if(WEFT_WERROR)
  list(APPEND WEFT_WARNINGS -Werror)
  target_compile_options(weft_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings>)
endif()
target_compile_options(weft_flags INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${WEFT_WARNINGS}>")
if(WEFT_SANITIZE STREQUAL "address")
  set(WEFT_SANITIZER_FLAGS -fsanitize=address,undefined -fno-sanitize-recover=undefined)
elseif(WEFT_SANITIZE STREQUAL "thread")
  set(WEFT_SANITIZER_FLAGS -fsanitize=thread)
elseif(WEFT_SANITIZE)
  message(FATAL_ERROR "WEFT_SANITIZE must be empty, address or thread, not ${WEFT_SANITIZE}")
endif()
if(WEFT_SANITIZE)
  add_link_options(${WEFT_SANITIZER_FLAGS})
  list(APPEND WEFT_SANITIZER_FLAGS -fno-omit-frame-pointer)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # gcc 12 sees uninitialized members in its own std::regex once it is instrumented.
    list(APPEND WEFT_SANITIZER_FLAGS -Wno-maybe-uninitialized)
  else()
    # Sources ask by the name that gcc has for it.
    string(TOUPPER ${WEFT_SANITIZE} name)
    list(APPEND WEFT_SANITIZER_FLAGS -D__SANITIZE_${name}__=1)
  endif()
  add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:${WEFT_SANITIZER_FLAGS}>")
endif()

function(weft_library NAME)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(weft_${NAME} STATIC ${ARG_SRCS})
  add_library(weft::${NAME} ALIAS weft_${NAME})
  # The public headers need it of whoever includes them, whatever their project's default is.
  target_compile_features(weft_${NAME} PUBLIC cxx_std_20)
  target_include_directories(weft_${NAME}
    PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
    PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(weft_${NAME} PUBLIC ${ARG_DEPS} PRIVATE weft_flags ${ARG_PRIVATE_DEPS})
endfunction()

function(weft_test NAME)
  cmake_parse_arguments(ARG "" "TIMEOUT;FILTER;COST" "SRCS;DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(${NAME} ${ARG_SRCS})
  # Half the time to build, and nothing that is measured runs in a test.
  target_compile_options(${NAME} PRIVATE $<IF:$<BOOL:${WEFT_SANITIZE}>,-O0,-O1>)
  target_include_directories(${NAME} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${NAME} PRIVATE weft_flags weft_test_main ${ARG_DEPS})
  set(properties TIMEOUT ${ARG_TIMEOUT})
  foreach(property LABELS ENVIRONMENT COST)
    if(ARG_${property})
      list(APPEND properties ${property} "${ARG_${property}}")
    endif()
  endforeach()
  gtest_discover_tests(${NAME}
    TEST_PREFIX ${NAME}.
    TEST_FILTER "${ARG_FILTER}"
    DISCOVERY_TIMEOUT 60
    PROPERTIES ${properties})
endfunction()

# weft_test_computes(NAME): its references take longer to run than to compile, sanitized or not.
function(weft_test_computes NAME)
  target_compile_options(${NAME} PRIVATE -O1)
endfunction()

# weft_finds_libraries_in(TARGET FOLDER): what it opens by name is looked for there.
function(weft_finds_libraries_in TARGET FOLDER)
  set_target_properties(${TARGET} PROPERTIES BUILD_RPATH ${FOLDER})
  # Sanitizers call dlopen from their own library, for which a RUNPATH of the program does not count.
  target_link_options(${TARGET} PRIVATE -Wl,--disable-new-dtags)
endfunction()
