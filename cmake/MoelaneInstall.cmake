# Headers, library, program, CMake package and pkg-config file.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/moelane)
install(TARGETS moelane EXPORT moelaneTargets)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/moelane TYPE INCLUDE FILES_MATCHING PATTERN "*.hpp")
if(TARGET moelane_cli)
  file(RELATIVE_PATH bin_to_lib ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
  set_target_properties(moelane_cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS moelane_cli)
endif()

install(EXPORT moelaneTargets NAMESPACE moelane:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/moelaneConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/moelaneConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/moelaneConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/moelaneConfig.cmake ${PROJECT_BINARY_DIR}/moelaneConfigVersion.cmake
        DESTINATION ${package_dir})

# The file finds its prefix from where it lies, so an installed tree can be moved.
set(pc_dir ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${pc_dir} OUTPUT_VARIABLE pc_to_prefix)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_LIBDIR BASE_DIRECTORY ${pc_dir} OUTPUT_VARIABLE pc_to_lib)
cmake_path(RELATIVE_PATH CMAKE_INSTALL_FULL_INCLUDEDIR BASE_DIRECTORY ${pc_dir} OUTPUT_VARIABLE pc_to_include)
set(pc_private_libs "-pthread -ldl")
get_target_property(type moelane TYPE)
if(MOELANE_CUDA AND type STREQUAL "STATIC_LIBRARY")
  install(FILES ${MOELANE_CUDART} DESTINATION ${moelane_cudart_dir})  # users need no toolkit
  string(PREPEND pc_private_libs "-L\${libdir}/moelane -lcudart_static -ldl -lrt ")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/moelane.pc.in ${PROJECT_BINARY_DIR}/moelane.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/moelane.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
