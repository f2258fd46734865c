# Defines reel::cudnn where there is a cuDNN, which has no package for CMake. It lies with the toolkit or, where Python
# brought it, in a folder of $REEL_NVIDIA_DIRS. The installed package finds it by this file, too.
if(NOT TARGET reel::cudnn)
  set(reel_nvidia_dirs ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} $ENV{REEL_NVIDIA_DIRS})
  find_path(CUDNN_INCLUDE_DIR cudnn.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${reel_nvidia_dirs} PATH_SUFFIXES include)
  find_library(CUDNN_LIBRARY NAMES cudnn libcudnn.so.9 NAMES_PER_DIR
               HINTS ${CUDAToolkit_LIBRARY_DIR} ${reel_nvidia_dirs} PATH_SUFFIXES lib64 lib)
  mark_as_advanced(CUDNN_INCLUDE_DIR CUDNN_LIBRARY)
  if(CUDNN_INCLUDE_DIR AND CUDNN_LIBRARY)
    add_library(reel::cudnn UNKNOWN IMPORTED)
    set_target_properties(reel::cudnn PROPERTIES IMPORTED_LOCATION ${CUDNN_LIBRARY}
                          INTERFACE_INCLUDE_DIRECTORIES ${CUDNN_INCLUDE_DIR})
  endif()
  unset(reel_nvidia_dirs)
endif()
