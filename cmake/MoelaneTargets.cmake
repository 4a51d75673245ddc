# moelane_target(name): what every target compiled here has in common. Nothing of it reaches a consumer.
function(moelane_target name)
  target_compile_features(${name} PRIVATE cxx_std_20)
  set_target_properties(${name} PROPERTIES CXX_EXTENSIONS OFF POSITION_INDEPENDENT_CODE ON)

  # The library's sums are bitwise the same everywhere: a fused multiply-add only where the source says so.
  set(host -ffp-contract=off -Wall -Wextra -Wpedantic -Wshadow -Wconversion)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
    list(APPEND host -Wno-restrict)  # GCC bug 105651: false for "literal" + std::string
  endif()
  if(MOELANE_WERROR)
    list(APPEND host -Werror)
  endif()
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${host}>)

  if(MOELANE_CUDA)
    # Constexpr functions of the public headers serve device code too. nvcc's own output is not pedantic. A spill
    # is a warning, and so an error where warnings are.
    set(device --fmad=false --expt-relaxed-constexpr -Xptxas=--warn-on-spills
               -Xcompiler=-ffp-contract=off,-Wall,-Wextra)
    if(MOELANE_WERROR)
      list(APPEND device --Werror=all-warnings)
    endif()
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${device}>)
  endif()

  if(NOT MOELANE_SANITIZE STREQUAL "")
    set(sanitize -fsanitize=${MOELANE_SANITIZE} -fno-sanitize-recover=all)
    target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:${sanitize} -fno-omit-frame-pointer>)
    target_link_options(${name} PRIVATE ${sanitize})
  endif()
  if(NOT MOELANE_WEAKEN STREQUAL "")
    target_compile_definitions(${name} PRIVATE MOELANE_WEAKEN=${MOELANE_WEAKEN})
  endif()
endfunction()

# moelane_find(package apt): find_package, or stop with a sentence that names the Debian package.
macro(moelane_find package apt)
  find_package(${package} QUIET)
  if(NOT ${package}_FOUND)
    message(FATAL_ERROR "moelane needs ${package}, which CMake does not find; on Debian: apt-get install ${apt}")
  endif()
endmacro()
