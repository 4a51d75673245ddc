# Builds examples/consumer in one of three ways and runs it; see tests/CMakeLists.txt for the variables.
cmake_minimum_required(VERSION 3.25)

set(work ${binary}/consumer/${way})
set(prefix ${work}/prefix)
set(example ${source}/examples/consumer)
file(REMOVE_RECURSE ${work})
file(MAKE_DIRECTORY ${work})

function(step)
  execute_process(COMMAND ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

function(build_with_cmake)
  step(${CMAKE_COMMAND} -S ${example} -B ${work}/build -G ${generator} -DCMAKE_CXX_COMPILER=${compiler} ${ARGN})
  step(${CMAKE_COMMAND} --build ${work}/build)
endfunction()

if(NOT way STREQUAL "subdirectory")
  step(${CMAKE_COMMAND} --install ${binary} --prefix ${prefix} --config "${config}")
  # An installed tree can be moved.
  file(RENAME ${prefix} ${work}/moved)
  set(prefix ${work}/moved)
endif()

if(way STREQUAL "package")
  build_with_cmake(-DCMAKE_PREFIX_PATH=${prefix} -DCMAKE_BUILD_TYPE=${config})
  step(${work}/build/consumer)
elseif(way STREQUAL "subdirectory")
  # As a shared library, and without optimisation for the sake of time.
  build_with_cmake(-DMOELANE_SOURCE=${source} -DBUILD_SHARED_LIBS=ON -DCMAKE_CXX_COMPILER_LAUNCHER=${launcher})
  step(${work}/build/consumer)
elseif(way STREQUAL "pkgconfig")
  find_program(pkg_config NAMES pkg-config pkgconf REQUIRED)
  file(GLOB_RECURSE pc ${prefix}/*/moelane.pc)
  cmake_path(GET pc PARENT_PATH pc_dir)
  set(ENV{PKG_CONFIG_PATH} ${pc_dir})
  execute_process(COMMAND ${pkg_config} --cflags --libs --static moelane OUTPUT_VARIABLE flags
                  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
  separate_arguments(flags UNIX_COMMAND "${flags}")
  step(${compiler} -std=c++20 ${example}/main.cpp ${flags} -Wl,-rpath,${pc_dir}/.. -o ${work}/consumer_pc)
  step(${work}/consumer_pc)
else()
  message(FATAL_ERROR "way is \"${way}\"; allowed are package, subdirectory and pkgconfig")
endif()
