# Configures examples/readme as a user's project, with Weft in its folder weft/, and compiles it.
# WEFT, CXX, FOLDER: the source tree, the compiler, and a folder to work in.
file(REMOVE_RECURSE ${FOLDER})
file(COPY ${WEFT}/examples/readme/ DESTINATION ${FOLDER})
file(CREATE_LINK ${WEFT} ${FOLDER}/weft SYMBOLIC)
execute_process(
  COMMAND ${CMAKE_COMMAND} -G Ninja -S ${FOLDER} -B ${FOLDER}/build -D CMAKE_CXX_COMPILER=${CXX}
    "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror"
  COMMAND_ERROR_IS_FATAL ANY)
execute_process(
  COMMAND ${CMAKE_COMMAND} --build ${FOLDER}/build --target CMakeFiles/train.dir/train.cc.o
  COMMAND_ERROR_IS_FATAL ANY)
