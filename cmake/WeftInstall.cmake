# What `make install` puts where: program, libraries, headers, plugins, and what finds them (pkg-config, CMake).
include(CMakePackageConfigHelpers)
set(WEFT_INSTALL_PLUGINS ${CMAKE_INSTALL_LIBDIR}/weft)
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/Weft)

install(TARGETS weft_shared EXPORT WeftTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(TARGETS weft_static weft ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/weft DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY DESTINATION ${WEFT_INSTALL_PLUGINS})
foreach(mpi IN LISTS WEFT_MPI_FOUND)
  install(TARGETS weft_mpi_${mpi} LIBRARY DESTINATION ${WEFT_INSTALL_PLUGINS})
endforeach()

install(EXPORT WeftTargets NAMESPACE Weft:: DESTINATION ${package})
configure_package_config_file(cmake/WeftConfig.cmake.in ${CMAKE_BINARY_DIR}/WeftConfig.cmake INSTALL_DESTINATION ${package}
  PATH_VARS WEFT_INSTALL_PLUGINS)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/WeftConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/WeftConfig.cmake ${CMAKE_BINARY_DIR}/WeftConfigVersion.cmake DESTINATION ${package})

set(pkgconfig ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
file(RELATIVE_PATH WEFT_PC_TO_PREFIX /${pkgconfig} /)
string(REGEX REPLACE "/$" "" WEFT_PC_TO_PREFIX "${WEFT_PC_TO_PREFIX}")
string(REPLACE ";" ", " WEFT_MPI_NAMES "${WEFT_MPI_FOUND}")
configure_file(cmake/weft.pc.in ${CMAKE_BINARY_DIR}/weft.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/weft.pc DESTINATION ${pkgconfig})
if(WEFT_MPI_FOUND)
  configure_file(cmake/weft-mpi.pc.in ${CMAKE_BINARY_DIR}/weft-mpi.pc @ONLY)
  install(FILES ${CMAKE_BINARY_DIR}/weft-mpi.pc DESTINATION ${pkgconfig})
endif()
