# libweft.so and libweft.a, each of all layers, and what `cmake --install` puts where. Both are built from the
# same objects; BUILD_SHARED_LIBS says which one is installed. The other is the component weft_other:
# `cmake --install build --component weft_other`.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(layers base c collectives collectives_gloo collectives_local collectives_plugin device device_check device_host runtime safetensors
  scheduler update)
set(objects)
foreach(layer ${layers})
  list(APPEND objects $<TARGET_OBJECTS:weft_${layer}>)
endforeach()
# What the public headers include, and what only the objects need.
set(public_packages absl::status absl::statusor absl::strings absl::span absl::time Threads::Threads)
set(private_packages gloo OneDNN::dnnl OpenMP::OpenMP_CXX ZLIB::ZLIB ${CMAKE_DL_LIBS})
if(Cbc_FOUND)
  list(APPEND private_packages Cbc Cgl OsiClp Osi Clp CoinUtils)
endif()

foreach(kind static shared)
  string(TOUPPER ${kind} type)
  add_library(weft_${kind} ${type} ${objects})
  add_library(weft::${kind} ALIAS weft_${kind})
  target_compile_features(weft_${kind} INTERFACE cxx_std_20)
  target_include_directories(weft_${kind} INTERFACE
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(weft_${kind} PUBLIC ${public_packages} PRIVATE ${private_packages})
  set_target_properties(weft_${kind} PROPERTIES
    OUTPUT_NAME weft
    EXPORT_NAME ${kind}
    LINKER_LANGUAGE CXX
    ARCHIVE_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib
    LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/lib)
endforeach()
set_target_properties(weft_shared PROPERTIES
  VERSION ${PROJECT_VERSION}
  SOVERSION ${PROJECT_VERSION_MAJOR}
  LINK_DEPENDS ${PROJECT_SOURCE_DIR}/cmake/weft.map)
target_link_options(weft_shared PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/weft.map)
if(NOT WEFT_SANITIZE)  # what clang's sanitizers need comes from the program
  target_link_options(weft_shared PRIVATE -Wl,--no-undefined)
endif()

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/weft)
foreach(kind static shared)
  if((kind STREQUAL shared AND BUILD_SHARED_LIBS) OR (kind STREQUAL static AND NOT BUILD_SHARED_LIBS))
    set(component COMPONENT weft)
  else()
    set(component COMPONENT weft_other EXCLUDE_FROM_ALL)
  endif()
  install(TARGETS weft_${kind} EXPORT weft-${kind}
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component}
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component})
  install(EXPORT weft-${kind} NAMESPACE weft:: DESTINATION ${package_folder} ${component})
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT weft
  FILES_MATCHING PATTERN "*.h")
if(TARGET weft_cuda)
  install(TARGETS weft_cuda LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT weft)
endif()

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/weft-config.cmake.in
  ${PROJECT_BINARY_DIR}/weft-config.cmake INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/weft-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES
  ${PROJECT_BINARY_DIR}/weft-config.cmake
  ${PROJECT_BINARY_DIR}/weft-config-version.cmake
  ${PROJECT_SOURCE_DIR}/cmake/FindOneDNN.cmake
  DESTINATION ${package_folder} COMPONENT weft)

# pkg-config: the libraries that only libweft.a needs are private. OpenMP's has no package: its flag is the
# compiler's.
set(WEFT_PC_PRIVATE "-lgloo -ldnnl -lz ${OpenMP_CXX_FLAGS} -ldl -lpthread")
if(Cbc_FOUND)
  string(APPEND WEFT_PC_PRIVATE " -lCbc -lCgl -lOsiClp -lOsi -lClp -lCoinUtils")
endif()
# Relative to the file, so that the tree can be moved.
file(RELATIVE_PATH WEFT_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/weft.pc.in ${PROJECT_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weft.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT weft)
