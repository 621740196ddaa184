# Installs libweft of one kind, moves the tree elsewhere, and builds and runs two programs against it: C++ by
# find_package, C by pkg-config.
# BUILD, SOURCE, KIND (static or shared), DEFAULT (the kind that is installed unasked), FOLDER, CXX, CC, PKG_CONFIG.
set(run COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
file(REMOVE_RECURSE ${FOLDER})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/first
  OUTPUT_QUIET ${run})
if(NOT KIND STREQUAL DEFAULT)
  execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${FOLDER}/first --component weft_other
    OUTPUT_QUIET ${run})
  file(GLOB_RECURSE others ${FOLDER}/first/weft-${DEFAULT}*.cmake)
  if(DEFAULT STREQUAL static)
    file(GLOB_RECURSE libraries ${FOLDER}/first/libweft.a)
  else()
    file(GLOB_RECURSE libraries ${FOLDER}/first/libweft.so*)
  endif()
  file(REMOVE ${others} ${libraries})
endif()
file(RENAME ${FOLDER}/first ${FOLDER}/prefix)
set(prefix ${FOLDER}/prefix)
file(GLOB_RECURSE package ${prefix}/weft.pc)
cmake_path(GET package PARENT_PATH pkgconfig)
cmake_path(GET pkgconfig PARENT_PATH lib)

# Nothing of the source or the build is spoken of.
file(GLOB_RECURSE texts ${prefix}/*.cmake ${prefix}/*.pc)
foreach(text ${texts})
  file(READ ${text} contents)
  foreach(folder ${SOURCE} ${BUILD})
    string(FIND "${contents}" ${folder} found)
    if(NOT found EQUAL -1)
      message(FATAL_ERROR "${text} names ${folder}")
    endif()
  endforeach()
endforeach()

file(MAKE_DIRECTORY ${FOLDER}/consumer)
configure_file(${SOURCE}/tests/install/consumer.txt ${FOLDER}/consumer/CMakeLists.txt COPYONLY)
execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${FOLDER}/consumer -B ${FOLDER}/consumer/build
    -D CMAKE_PREFIX_PATH=${prefix} -D EXAMPLES=${SOURCE}/examples
    -D CMAKE_CXX_COMPILER=${CXX} -D CMAKE_C_COMPILER=${CC} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
  OUTPUT_QUIET ${run})
execute_process(COMMAND ${CMAKE_COMMAND} --build ${FOLDER}/consumer/build ${run})
execute_process(COMMAND ${FOLDER}/consumer/build/train ${run})

set(ENV{PKG_CONFIG_PATH} ${pkgconfig}:$ENV{PKG_CONFIG_PATH})
set(static)
if(KIND STREQUAL static)
  set(static --static)
endif()
execute_process(COMMAND ${PKG_CONFIG} ${static} --cflags --libs weft OUTPUT_VARIABLE flags
  OUTPUT_STRIP_TRAILING_WHITESPACE ${run})
separate_arguments(flags UNIX_COMMAND "${flags}")
execute_process(COMMAND ${CC} -std=c11 -pedantic -Wall -Wextra -Werror ${SOURCE}/examples/c/train.c
    -o ${FOLDER}/train_c ${flags} ${run})

# A plug-in needs the headers alone.
execute_process(COMMAND ${PKG_CONFIG} --cflags weft OUTPUT_VARIABLE cflags OUTPUT_STRIP_TRAILING_WHITESPACE ${run})
separate_arguments(cflags UNIX_COMMAND "${cflags}")
execute_process(COMMAND ${CC} -std=c11 -D_GNU_SOURCE -pedantic -Wall -Wextra -Werror -fPIC -shared ${cflags}
    -I ${SOURCE}/examples ${SOURCE}/examples/plugin/shm_transport.c ${SOURCE}/examples/plugin/world.c
    -o ${FOLDER}/libweft-transport-shm.so -lpthread -lm ${run})
set(ENV{LD_LIBRARY_PATH} ${lib}:$ENV{LD_LIBRARY_PATH})
execute_process(COMMAND ${FOLDER}/train_c ${run})
