# Sets CUBLASLT_INCLUDE_DIR and CUBLASLT_LIBRARY. Like cuDNN, cuBLAS lies with the toolkit or where Python brought it,
# in a folder of $REEL_NVIDIA_DIRS.
set(nvidia_dirs ${CUDAToolkit_LIBRARY_ROOT} ${CUDAToolkit_TARGET_DIR} $ENV{REEL_NVIDIA_DIRS})
find_path(CUBLASLT_INCLUDE_DIR cublasLt.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${nvidia_dirs} PATH_SUFFIXES include
          REQUIRED)
find_library(CUBLASLT_LIBRARY NAMES cublasLt libcublasLt.so.${CUDAToolkit_VERSION_MAJOR} NAMES_PER_DIR
             HINTS ${CUDAToolkit_LIBRARY_DIR} ${nvidia_dirs} PATH_SUFFIXES lib64 lib REQUIRED)
mark_as_advanced(CUBLASLT_INCLUDE_DIR CUBLASLT_LIBRARY)
unset(nvidia_dirs)
