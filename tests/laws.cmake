# Tests of what holds on every device; a program links a definition of NewDevice() (support/device.h).
set(WEFT_DEVICE_LAWS "")
foreach(law buffer column_norms elementwise matmul row_norm stream symmetric)
  list(APPEND WEFT_DEVICE_LAWS ${PROJECT_SOURCE_DIR}/tests/device/${law}_test.cc)
endforeach()
